"""What each model of a pool would cost and be worth to a request, and why it cannot serve it, if so. Pure."""

from typing import Final

from backends.usage import NO_UNITS
from gateway.routing.expected_cost import answer_tokens, expected_cost, expected_time_to_first_token_seconds
from gateway.routing.preference import Ranked
from gateway.routing.refusals import DOWN_BECAUSE, TOO_LONG
from gateway.routing.rules import READ_APART, SPECIALTIES
from gateway.routing.snapshot import Candidate, Pool, RequestFacts

UP: Final = (0, 0.0)


def weigh(pool: Pool, request: RequestFacts) -> list[Ranked]:
    """There may be hundreds of models: what is the same for all is read once, and most cost a multiplication for each
    direction."""
    facts, unfit = request.facts, pool.unfit
    lengths, qualities = facts.lengths_of(pool.names), facts.qualities_of(pool.names)
    input_tokens, limit, states = facts.input_tokens, facts.max_output_tokens, facts.backend_state
    is_plain = facts.units == NO_UNITS and not facts.warm_tokens
    needed = 0 if SPECIALTIES.get(request.operation) in READ_APART else facts.window_tokens + (limit or 1)
    is_long = needed > pool.narrowest_window
    answers: dict[float | None, int] = {}  # by length, of which there are few
    weighed: list[Ranked] = []
    for at, candidate in enumerate(pool.models):  # for a few models faster than `zip`
        rejected = unfit[at]
        if rejected is None and (is_long or states):
            rejected = _hindrance(candidate, request, needed)
        if (output := answers.get(length := lengths[at])) is None:
            output = answers[length] = answer_tokens(length, limit)
        if is_plain and (rates := candidate.plain_rates) is not None and input_tokens <= rates[3]:
            cost = input_tokens * rates[0] + output * rates[1] + rates[2]
        else:
            cost = expected_cost(facts, candidate, output)
        if candidate.speed is None and not states:
            seconds = candidate.typical_time_to_first_token_seconds
        else:
            seconds = expected_time_to_first_token_seconds(facts, candidate)
        weighed.append(Ranked(candidate, cost, qualities[at], seconds, rejected))
    return weighed


def _hindrance(candidate: Candidate, request: RequestFacts, needed: int) -> str | None:
    """Of this one request."""
    facts = request.facts
    if candidate.context_window < needed:
        asked = f" + {facts.max_output_tokens:,} asked for" if facts.max_output_tokens else ""
        return f"about {facts.window_tokens:,} tokens{asked} {TOO_LONG} of {candidate.context_window:,}"
    slots, _ = facts.backend_state.get(candidate.name, UP)
    return DOWN_BECAUSE.get(slots, "its backend is down") if slots < 0 else None
