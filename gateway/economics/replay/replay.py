"""Replays logged traffic under other rules, prices, models or GPUs: every request is decided again, in time order.

Wherever the replay decides as the log did, the observed values are used: under the logged rules and prices the result
is the logged cost, to the pico-dollar. Budgets and rate limits are not replayed: an admitted request stays admitted.
GPU rent is no request's cost and is compared elsewhere (`break_even`).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import msgspec

from gateway.economics.errors import EconomicsError
from gateway.economics.replay.log import LoggedRequest, Served, Verified
from gateway.economics.replay.outcome import ModelOutcome
from gateway.economics.replay.result import ReplayDiff
from gateway.economics.replay.state import SlotChanges
from gateway.errors import RequestError
from gateway.ledger.entry import Facts
from gateway.routing.decide import decide as decide_by_rules
from gateway.routing.snapshot import RequestFacts, Snapshot

PROGRESS_EVERY = 10_000
SAME = ModelOutcome()


class Decided(NamedTuple):
    """`escalates_to`: models to ask if `model`'s answer fails verification, which checks its form if `verifies_format`
    and its log-probabilities if `verifies_logprobs`. `order`: all that may answer, as they are tried; empty: any."""

    model: str
    quality: float | None
    escalates_to: tuple[str, ...] = ()
    verifies_format: bool = True
    verifies_logprobs: bool = True
    order: tuple[str, ...] = ()


class Decide(Protocol):
    """The rules to replay under. Returns None if no model may serve this request."""

    def __call__(self, request: RequestFacts, facts: Facts, /) -> Decided | None: ...


PriceServed = Callable[[str, Served], int | None]
"""Price in pico-USD of what a model served; None if unknown."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """What differs from the log. If both price lists are one object, logged costs are reused, not recomputed.

    Engines are as busy as logged, corrected for moved requests. Prompt caches are not simulated: a moved request finds
    cached what the log says was cached there.
    """

    decide: Decide
    price: PriceServed
    logged_price: PriceServed
    outcomes: Mapping[str, ModelOutcome] = field(default_factory=dict[str, ModelOutcome])


def replay(
    log: Iterable[LoggedRequest], scenario: Scenario, *, progress: Callable[[int], None] | None = None
) -> ReplayDiff:
    """One pass over `log`. Raises EconomicsError if it is not sorted by time: slots would have no meaning. `progress`
    is called with the number of requests done."""
    changes, diff = SlotChanges(), ReplayDiff()
    last_us = 0
    for logged in log:
        if logged.served.at_us < last_us:
            raise EconomicsError(f"request {logged.request_id} is earlier than the one before it")
        last_us = logged.served.at_us
        _replay_one(logged, scenario, changes, diff)
        if progress is not None and diff.requests % PROGRESS_EVERY == 0:
            progress(diff.requests)
    if progress is not None:
        progress(diff.requests)
    return diff


def decide_with(snapshot: Snapshot) -> Decide:
    """The router's own decision under `snapshot`, as a replay asks for it."""

    def decide(request: RequestFacts, facts: Facts, /) -> Decided | None:
        if facts is not request.facts:
            request = msgspec.structs.replace(request, facts=facts)
        try:
            choice = decide_by_rules(request, snapshot)
        except RequestError:
            return None
        decision, escalation = choice.decision, choice.escalation
        chosen = (decision.model, decision.predicted_quality)
        order = tuple([one.name for one in choice.order])
        if escalation is None:
            return Decided(*chosen, order=order)
        verify = escalation.verify
        asks_logprobs, stronger = verify.min_mean_logprob is not None, decision.escalates_to
        return Decided(*chosen, stronger, verify.format, asks_logprobs, (*order, *stronger))

    return decide


def _replay_one(logged: LoggedRequest, scenario: Scenario, changes: SlotChanges, diff: ReplayDiff) -> None:
    diff.requests += 1
    facts = changes.facts_for(logged)
    decided = scenario.decide(logged.request, facts)
    if decided is None:
        diff.refused += 1
        diff.refused_down += _is_served_when_up(logged, facts, scenario)
        return
    model, quality = _passed_on(logged, decided)
    if model is None:
        diff.refused += 1
        diff.refused_down += 1
        return
    diff.failed += bool(logged.failed_at) and not logged.failed_at.issuperset(decided.order or (decided.model,))
    is_cut = _is_cut(logged, decided)
    stands_now = _stands_now(decided, logged.verified)
    if decided.escalates_to and not (is_cut or stands_now or _repeats(decided, logged.verified)):
        diff.unverified += 1
    if model == logged.model:
        cost = _same_place(logged, scenario)
        first_token = logged.time_to_first_token_seconds
    else:
        cost, first_token = _elsewhere(logged, model, facts, scenario, changes)
        _note_cache(logged, model, facts, scenario, diff)
    if stands_now and logged.verified is not None and scenario.price is scenario.logged_price:
        cost = logged.verified.cost_pico_usd or cost  # None for an engine of our own
    if is_cut:
        cost = _with_cut(cost, logged, scenario)
    else:
        cost = _with_refused(cost, logged, decided, is_logged=model == logged.model)
    if model != logged.model:
        diff.note_move(logged, model, cost)
    diff.add(logged, model, cost, quality, first_token)


def _is_served_when_up(logged: LoggedRequest, facts: Facts, scenario: Scenario) -> bool:
    """Whether the request is refused only because models were down."""
    up = {model: state for model, state in facts.backend_state.items() if state[0] >= 0}
    if len(up) == len(facts.backend_state):
        return False
    return scenario.decide(logged.request, msgspec.structs.replace(facts, backend_state=up)) is not None


def _note_cache(logged: LoggedRequest, model: str, facts: Facts, scenario: Scenario, diff: ReplayDiff) -> None:
    """Counts tokens that were read from a cache and count as fresh at the new model."""
    read = logged.served.cached_input_tokens - facts.warm_tokens.get(model, 0)
    if read <= 0:
        return
    outcome, of = scenario.outcomes.get(model, SAME), scenario.outcomes.get(logged.model, SAME)
    warm = round(logged.served.cached_input_tokens * outcome.input_ratio / of.input_ratio)
    fresh, cached = (
        scenario.price(model, outcome.served_instead(logged, of, tokens))
        for tokens in (facts.warm_tokens.get(model, 0), warm)
    )
    if fresh is not None and cached is not None and logged.cost_pico_usd is not None:
        diff.cached_tokens += read
        diff.cached_pico_usd += fresh - cached


def _repeats(decided: Decided, verified: Verified | None) -> bool:
    """Whether the same model is asked and verified as in the log, so that the outcome is known."""
    if verified is None or verified.asked != decided.model or _stands_now(decided, verified):
        return False
    return bool(decided.escalates_to)


def _stands_now(decided: Decided, verified: Verified | None) -> bool:
    """Whether a refused answer now passes, because what failed then (form or confidence) is no longer verified."""
    if verified is None or verified.stood or verified.asked != decided.model or not decided.escalates_to:
        return False
    return not (decided.verifies_logprobs if verified.is_unsure else decided.verifies_format)


def _is_cut(logged: LoggedRequest, decided: Decided) -> bool:
    """Whether the logged answer would be given again but, being unfinished, now fail verification."""
    is_again = decided.model in (logged.model, logged.decided) and logged.model not in decided.escalates_to
    return is_again and logged.is_unfinished and bool(decided.escalates_to) and decided.verifies_format


def _fallen_back(logged: LoggedRequest, decided: Decided) -> str | None:
    """Who answers where the chosen model is the logged one: whoever answered then or, if that model failed and the
    rules no longer allow who answered instead, the next; None if there is no other."""
    if not decided.order or logged.model in decided.order:
        return logged.model
    return next((model for model in decided.order if model != decided.model), None)


def _passed_on(logged: LoggedRequest, decided: Decided) -> tuple[str | None, float | None]:
    """Whose answer the caller gets; None: nobody's. An answer that was never verified counts as passing; a model that
    failed when asked fails again."""
    verified = logged.verified
    if _is_cut(logged, decided):
        return decided.escalates_to[0], logged.facts.predicted_quality.get(decided.escalates_to[0])
    if verified is None and decided.model == logged.decided:
        return _fallen_back(logged, decided), decided.quality
    if verified is None or verified.stood or not _repeats(decided, verified):
        return decided.model, decided.quality
    model = logged.model if logged.model in decided.escalates_to else decided.escalates_to[0]
    return model, logged.facts.predicted_quality.get(model)


def _with_refused(cost: int | None, logged: LoggedRequest, decided: Decided, *, is_logged: bool) -> int | None:
    """The logged cost includes the refused answer, which must be paid for exactly when it is asked for again."""
    verified = logged.verified
    if cost is None or verified is None or verified.stood or is_logged == _repeats(decided, verified):
        return cost
    return cost - verified.cost_pico_usd if is_logged else cost + verified.cost_pico_usd


def _with_cut(cost: int | None, logged: LoggedRequest, scenario: Scenario) -> int | None:
    """Adds the cost of the cut answer; an engine of our own bills nothing for it."""
    cut = 0 if logged.served.gpu_seconds else _same_place(logged, scenario)
    return None if cost is None or cut is None else cost + cut


def _same_place(logged: LoggedRequest, scenario: Scenario) -> int | None:
    """What was charged, plus the difference that new prices make: billed failures and rounding stay as logged."""
    if scenario.price is scenario.logged_price:
        return logged.cost_pico_usd
    now, then = (priced(logged.model, logged.served) for priced in (scenario.price, scenario.logged_price))
    if now is None or then is None or logged.cost_pico_usd is None:
        return now
    return logged.cost_pico_usd + now - then


def _elsewhere(
    logged: LoggedRequest, model: str, facts: Facts, scenario: Scenario, changes: SlotChanges
) -> tuple[int | None, float]:
    """Cost and time to first token at a model other than the logged one."""
    outcome, of = scenario.outcomes.get(model, SAME), scenario.outcomes.get(logged.model, SAME)
    served = outcome.served_instead(logged, of, facts.warm_tokens.get(model, 0))
    residence = outcome.residence_seconds(served) or logged.total_seconds  # 0: the scenario gives no speed
    changes.move(logged, model, residence)
    return scenario.price(model, served), outcome.time_to_first_token_seconds(served)
