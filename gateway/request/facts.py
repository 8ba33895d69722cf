"""Assembles a request's facts for the decision, and its intent for the ledger. Pure."""

from collections.abc import Iterable, Mapping

from classifier.predictions import rounded
from classifier.protocol import Classification
from gateway.access.keys import KeyRecord
from gateway.ids import new_request_id
from gateway.ledger.entry import Facts, Intent
from gateway.request.cost_bounds import cascade_bound_pico_usd
from gateway.request.view import RequestView
from gateway.routing.decide import Choice
from gateway.routing.rules import SPECIALTIES
from gateway.routing.snapshot import Candidate, RequestFacts
from gateway.rulebook.state import RuleState


def gather_facts(
    view: RequestView,
    found: Classification | None,
    names: Mapping[str, object],
    *,
    warm_tokens: Mapping[str, int],
    backend_state: Mapping[str, tuple[int, float]],
    draw: float,
    rules: RuleState,
    repeated_tokens: int = 0,
    expected_tokens: dict[str, float] | None = None,
) -> Facts:
    """Everything `decide()` uses besides rules and prices, rounded as it is stored.

    `expected_tokens` is used for answers whose length the classifier does not predict.

    Rounds half up by inline arithmetic: `round` with decimals formats the number and parses it again, which costs ten
    times as much. The constants are floats too: the interpreter has no shortcut for a float times a whole number.
    """
    predictions = None if found is None else rounded(found.quality, found.output_tokens, names)
    if found is None or predictions is not None:
        quality, output_tokens = {}, {} if found else expected_tokens or {}
    else:
        quality, output_tokens = _rounded_by_name(found, names)
    return Facts(  # by position: Python collects more than fifteen keywords in a dictionary first
        view.input_tokens,
        view.max_output_tokens,
        (found.difficulty * 10_000.0 + 0.5) // 1.0 / 10_000.0 if found else None,
        (found.uncertainty * 10_000.0 + 0.5) // 1.0 / 10_000.0 if found else None,
        quality,
        output_tokens,
        view.needs,
        warm_tokens={name: min(tokens, view.input_tokens) for name, tokens in warm_tokens.items() if name in names}
        if warm_tokens
        else {},
        backend_state=dict(backend_state),
        draw=draw,
        explored_pico_usd=rules.explored_pico_usd,
        allowed_loss=rules.allowed_loss,
        repeated_tokens=repeated_tokens,
        units=view.units,
        longest_prompt_tokens=view.longest_prompt_tokens,
        predictions=predictions,
    )


def _rounded_by_name(found: Classification, names: Mapping[str, object]) -> tuple[dict[str, float], dict[str, float]]:
    return (
        {n: (q.mean * 10_000.0 + 0.5) // 1.0 / 10_000.0 for n, q in found.quality.items() if n in names},
        {n: (tokens * 10.0 + 0.5) // 1.0 / 10.0 for n, tokens in found.output_tokens.items() if n in names},
    )


def expected_tokens(view: RequestView, candidates: Iterable[Candidate]) -> dict[str, float]:
    """Expected output tokens of images, speech and the like: the same for every model of that specialty."""
    wanted = SPECIALTIES.get(view.operation)
    return {one.name: float(view.output_tokens) for one in candidates if one.specialty == wanted}


def request_facts(view: RequestView, key: KeyRecord, tags: tuple[str, ...], facts: Facts) -> RequestFacts:
    """The request as rules see it."""
    return RequestFacts(
        requested_model=view.model,
        operation=view.operation,
        key_id=key.id,
        team=key.team,
        project=key.project,
        tags=all_tags(key, tags),
        allowed_models=key.allowed_models,
        facts=facts,
    )


def new_intent(
    view: RequestView,
    key: KeyRecord,
    tags: tuple[str, ...],
    choice: Choice,
    *,
    accepted_at_us: int,
    traceparent: str | None,
    batch_id: str | None,
    end_user: str | None = None,
) -> Intent:
    """The record written to the ledger before anything is sent upstream."""
    first = choice.order[0]
    return Intent(
        new_request_id(),  # by position: Python collects more than fifteen keywords in a dictionary first
        accepted_at_us,
        key.id,
        key.team,
        key.project,
        all_tags(key, tags),
        view.operation,
        view.model,
        view.is_stream,
        decision=choice.decision,
        backend=first.backend,
        provider=first.provider,
        upstream_model=first.upstream_model,
        cost_bound_pico_usd=cascade_bound_pico_usd(first, choice, view),
        is_simulated=first.is_simulated,
        allowed_models=None if key.allowed_models is None else tuple(sorted(key.allowed_models)),
        traceparent=traceparent,
        batch_id=batch_id,
        end_user=end_user,
    )


def all_tags(key: KeyRecord, tags: tuple[str, ...]) -> tuple[str, ...]:
    """The key's own tags and the request's."""
    return tuple(sorted({*key.tags, *tags})) if key.tags or tags else ()
