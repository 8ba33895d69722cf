"""`/admin/v1/models` and `/prices`: what can be called, and at what price."""
# pyright: reportUnusedFunction=false

from fastapi import APIRouter, Query
from pydantic import BaseModel

from gateway.api.admin.guard import needs
from gateway.money import format_usd, plain, usd
from gateway.pipeline import Pipeline
from gateway.pricing.catalogue import ModelPrices, PriceBook
from gateway.pricing.price_figures import unit_figures
from gateway.pricing.price_yaml import decimal_text
from gateway.routing.snapshot import LOADING_SLOTS, Candidate

TOKENS_PER_MTOK = 1_000_000


class ModelRow(BaseModel):
    """One catalogue model. Prices are the list prices of a short, ordinary request now, null if unknown; `discount` is
    the share that is off all of them. `usd_each` is what some models are billed by besides tokens:
    `{"per image": "0.02"}`."""

    name: str
    backend: str
    provider: str
    upstream_model: str
    context_window: int
    supports: list[str]
    is_local: bool
    is_simulated: bool
    is_down: bool
    is_starting: bool
    free_slots: int | None
    input_usd_per_mtok: str | None
    cached_input_usd_per_mtok: str | None
    output_usd_per_mtok: str | None
    usd_each: dict[str, str]
    discount: str
    price_from: str | None
    price_source: str | None
    gpu_hour_usd: str | None


class ModelRows(BaseModel):
    rules_version: str
    prices_version: str
    classifier_version: str
    models: list[ModelRow]


class PriceRecord(BaseModel):
    """List prices from a date on. `discount` is the negotiated share off them; negative is a surcharge."""

    from_date: str
    input_usd_per_mtok: str
    cached_input_usd_per_mtok: str | None
    cache_write_5m_usd_per_mtok: str | None
    output_usd_per_mtok: str
    per_request_usd: str
    usd_each: dict[str, str]
    has_tiers: bool
    discount: str
    source: str
    note: str


class PricedModel(BaseModel):
    provider: str
    model: str
    history: list[PriceRecord]


class PriceList(BaseModel):
    """`total` is how many models match; at most `limit` are listed."""

    version: str
    total: int
    models: list[PricedModel]


def build_models_router(pipeline: Pipeline, prices: PriceBook) -> APIRouter:
    """Answers from this process's memory."""
    router = APIRouter(tags=["admin: operations"])

    @router.get("/models", openapi_extra=needs("catalogue.read"))
    async def models() -> ModelRows:
        """The model catalogue as routing sees it now."""
        snapshot = pipeline.snapshot
        state = pipeline.upstreams.state(snapshot.candidates.values(), pipeline.monotonic())
        return ModelRows(
            rules_version=snapshot.rules_version,
            prices_version=snapshot.prices_version,
            classifier_version=snapshot.classifier_version,
            models=[_model(one, state.get(name)) for name, one in sorted(snapshot.candidates.items())],
        )

    @router.get("/prices", openapi_extra=needs("catalogue.read"))
    async def price_list(
        provider: str | None = Query(None, max_length=64),
        containing: str = Query("", max_length=120),
        limit: int = Query(50, ge=1, le=500),
    ) -> PriceList:
        """Dated prices, which are never overwritten; newest first within a model."""
        found = [key for key in prices.models(provider) if containing.lower() in f"{key[0]}/{key[1]}".lower()]
        return PriceList(
            version=prices.version,
            total=len(found),
            models=[
                PricedModel(
                    provider=name, model=model, history=[_record(one) for one in reversed(prices.history(name, model))]
                )
                for name, model in found[:limit]
            ],
        )

    return router


def _model(candidate: Candidate, state: tuple[int, float] | None) -> ModelRow:
    prices, speed = candidate.prices, candidate.speed
    rates = prices.rates if prices is not None else None
    slots = state[0] if state is not None else None
    return ModelRow(
        name=candidate.name,
        backend=candidate.backend,
        provider=candidate.provider,
        upstream_model=candidate.upstream_model,
        context_window=candidate.context_window,
        supports=sorted(candidate.supports),
        is_local=candidate.is_local,
        is_simulated=candidate.is_simulated,
        is_down=slots is not None and slots < 0,
        is_starting=slots == LOADING_SLOTS,
        free_slots=slots if slots is not None and slots >= 0 else None,
        input_usd_per_mtok=_per_mtok(rates.input if rates else None),
        cached_input_usd_per_mtok=_per_mtok(rates.cached_input if rates else None),
        output_usd_per_mtok=_per_mtok(rates.output if rates else None),
        usd_each=dict(unit_figures(prices)) if prices else {},
        discount=decimal_text(prices.discount) if prices else "0",
        price_from=prices.from_date if prices else None,
        price_source=prices.source if prices else None,
        gpu_hour_usd=format_usd(speed.gpu_hour_pico_usd, places=6) if speed else None,
    )


def _record(prices: ModelPrices) -> PriceRecord:
    rates = prices.rates
    return PriceRecord(
        from_date=prices.from_date,
        input_usd_per_mtok=_per_mtok(rates.input) or "0",
        cached_input_usd_per_mtok=_per_mtok(rates.cached_input),
        cache_write_5m_usd_per_mtok=_per_mtok(rates.cache_write_5m),
        output_usd_per_mtok=_per_mtok(rates.output) or "0",
        per_request_usd=format_usd(prices.per_request_pico_usd),
        usd_each=dict(unit_figures(prices)),
        has_tiers=bool(prices.ladder.steps),
        discount=decimal_text(prices.discount),
        source=prices.source,
        note=prices.note,
    )


def _per_mtok(pico_usd_per_token: int | None) -> str | None:
    if pico_usd_per_token is None:
        return None
    return plain(usd(pico_usd_per_token * TOKENS_PER_MTOK))
