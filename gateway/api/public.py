"""The small public endpoints: models, route, health and metrics."""
# pyright: reportUnusedFunction=false

from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from pydantic import BaseModel

from gateway.api.gemini import is_googles
from gateway.api.model_pricing import Pricing, pricing_of
from gateway.api.models_page import PageAsked, anthropic_model, anthropic_page, google_model, google_page
from gateway.api.token_path import credential_of, parse_tags
from gateway.errors import ModelNotFound
from gateway.money import format_usd
from gateway.pipeline import Pipeline
from gateway.request.encodings import without_byte_order_mark
from gateway.request.view import parse_request
from gateway.routing.decide import Choice
from gateway.routing.plans import SIMULATE_TAG
from gateway.routing.rules import AUTO
from gateway.routing.snapshot import Candidate

OWNER = "breakeven"
ANTHROPIC = "anthropic-version"
"""The header that tells Anthropic's clients from OpenAI's on paths that both use."""


class Health(BaseModel):
    """The answer of `/healthz` and `/readyz`."""

    status: str
    problems: list[str] = []
    warnings: list[str] = []
    rules_version: str | None = None


class Model(BaseModel):
    """A model in OpenAI's format, plus what routing knows about it. `pricing` is null unless it is billed by the
    token at a known price."""

    id: str
    object: str = "model"
    created: int = 0
    owned_by: str
    context_window: int | None = None
    supports: list[str] = []
    is_local: bool = False
    pricing: Pricing | None = None


class ModelList(BaseModel):
    object: str = "list"
    data: list[Model]


class Weighed(BaseModel):
    """One candidate of a decision. `expected_cost_usd` is decimal text; null if no price is known."""

    model: str
    backend: str
    expected_cost_usd: str | None
    predicted_quality: float | None
    expected_time_to_first_token_seconds: float
    rejected: str | None


class Route(BaseModel):
    """Which model would answer a request, and why."""

    model: str
    backend: str
    rule: str
    difficulty: float | None
    uncertainty: float | None
    input_tokens: int
    fallbacks: list[str]
    escalates_to: list[str]
    candidates: list[Weighed]
    propensity: float
    rules_version: str
    prices_version: str
    classifier_version: str


def build_public_router(
    pipeline: Pipeline,
    registry: CollectorRegistry,
    problems: Callable[[], list[str]],
    warnings: Callable[[], list[str]] = list,
) -> APIRouter:
    """`problems` lists, in sentences, what keeps this process from serving; `warnings` what does not."""
    router = APIRouter()

    @router.get("/healthz", tags=["health"])
    async def healthz() -> Health:
        """The process is alive."""
        return Health(status="ok")

    @router.get("/health", include_in_schema=False)  # where vLLM, SGLang and llama.cpp say it, and guidellm asks
    @router.get("/readyz", tags=["health"], responses={503: {"model": Health}})
    async def readyz(response: Response) -> Health:
        """The process can serve: the ledger accepts entries and a backend is up. Also names the rules in force."""
        found = problems()
        if found:
            response.status_code = 503
        return Health(
            status="not ready" if found else "ready",
            problems=found,
            warnings=warnings(),
            rules_version=pipeline.snapshot.rules_version,
        )

    @router.get("/metrics", tags=["health"], response_class=Response)
    async def metrics() -> Response:
        """Prometheus metrics."""
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    @router.get("/v1/models", tags=["models"], response_model=ModelList)
    async def models(request: Request, asked: Annotated[PageAsked, Query()]) -> ModelList | Response:
        """The models this key may use, with `auto` and other names that rules route. Anthropic's and Google's clients
        get pages in their own format; others get the whole list."""
        allowed = _allowed(pipeline, request)
        if ANTHROPIC in request.headers:
            return JSONResponse(anthropic_page(list(allowed), asked))
        if is_googles(request.scope):
            return JSONResponse(google_page(allowed, asked))
        return ModelList(data=[_model(name, candidate) for name, candidate in allowed.items()])

    @router.get("/v1/models/{name:path}", tags=["models"], response_model=Model)
    async def model(name: str, request: Request) -> Model | Response:
        """One model. Anthropic's and Google's clients get it in their own format."""
        allowed = _allowed(pipeline, request)
        if name not in allowed:
            raise ModelNotFound(name, [one for one in allowed if one != AUTO])
        if ANTHROPIC in request.headers:
            return JSONResponse(anthropic_model(name))
        if is_googles(request.scope):
            return JSONResponse(google_model(name, allowed[name]))
        return _model(name, allowed[name])

    @router.post("/v1/route", tags=["models"])
    async def route(request: Request) -> Route:
        """Explain where a chat completion would go, without sending it. The body is the chat completion's."""
        headers = request.scope["headers"]
        key = pipeline.keys.authenticate(credential_of(headers), pipeline.now_us())
        await pipeline.admission.admit(key.id, team=key.team, tokens=0)
        view = parse_request("chat.completions", without_byte_order_mark(await request.body()))
        return explain(pipeline.decide(view, key, parse_tags(headers)))

    return router


def explain(choice: Choice) -> Route:
    """A decision as the response of `/v1/route`."""
    decision, facts = choice.decision, choice.decision.facts
    return Route(
        model=decision.model,
        backend=choice.order[0].backend,
        rule=decision.rule,
        difficulty=facts.difficulty,
        uncertainty=facts.uncertainty,
        input_tokens=facts.input_tokens,
        fallbacks=[candidate.name for candidate in choice.order[1:]],
        escalates_to=list(decision.escalates_to),
        candidates=[
            Weighed(
                model=ranked.candidate.name,
                backend=ranked.candidate.backend,
                expected_cost_usd=None
                if ranked.expected_cost_pico_usd is None
                else format_usd(ranked.expected_cost_pico_usd),
                predicted_quality=ranked.quality,
                expected_time_to_first_token_seconds=ranked.time_to_first_token_seconds,
                rejected=ranked.rejected,
            )
            for ranked in choice.weighed
        ],
        propensity=decision.propensity,
        rules_version=decision.rules_version,
        prices_version=decision.prices_version,
        classifier_version=decision.classifier_version,
    )


def _allowed(pipeline: Pipeline, request: Request) -> dict[str, Candidate | None]:
    """Names that the key may request: models, and `auto` and other names that rules route, which map to None."""
    headers = request.scope["headers"]
    key = pipeline.keys.authenticate(credential_of(headers), pipeline.now_us())
    may_simulate = SIMULATE_TAG in (*key.tags, *parse_tags(headers))
    snapshot = pipeline.priced_at(pipeline.now_us())
    models = {
        name: candidate
        for name, candidate in sorted(snapshot.candidates.items())
        if (key.allowed_models is None or name in key.allowed_models) and (may_simulate or not candidate.is_simulated)
    }
    routed = sorted(snapshot.routed_names - snapshot.candidates.keys() - {AUTO})
    return {AUTO: None, **dict.fromkeys(routed), **models}


def _model(name: str, candidate: Candidate | None) -> Model:
    if candidate is None:
        return Model(id=name, owned_by=OWNER)
    return Model(
        id=name,
        owned_by=candidate.provider,
        context_window=candidate.context_window,
        supports=sorted(candidate.supports),
        is_local=candidate.is_local,
        pricing=pricing_of(candidate),
    )
