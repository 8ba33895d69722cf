"""The most that a request can cost, before it is sent: budgets hold this amount, and intents record it. Pure."""

from gateway.ledger.entry import Cost
from gateway.pricing.catalogue import ModelPrices
from gateway.pricing.price import UnknownServiceTier, UnknownToolPrice, price_bound, price_compute
from gateway.request.hosted_tools import TOOL_RESULT_TOKENS
from gateway.request.metering import CHARACTERS_PER_TOKEN, Meter
from gateway.request.view import RequestView
from gateway.routing.decide import Choice
from gateway.routing.snapshot import Candidate, EngineSpeed

INCREMENT_TOKENS = 256
"""Under a budget, a stream holds its input and this much more output at a time."""
OUTPUT_BOUND_TOKENS = 4096
"""Assumed limit of an answer if the caller set none, for the upper bound of a request that was never settled."""
REASONING = "reasoning"


def bound_pico_usd(candidate: Candidate, view: RequestView) -> int | None:
    """The most this request can cost at a candidate; None when its price is not known."""
    return _most(candidate, view, longest_output(view))


def cascade_bound_pico_usd(candidate: Candidate, choice: Choice, view: RequestView) -> int | None:
    """The same, plus the model that the answer may be escalated to, if any."""
    bound = bound_pico_usd(candidate, view)
    if choice.escalation is None:
        return bound
    return sum_known(bound, bound_pico_usd(choice.escalation.order[0], view))


def increment_pico_usd(candidate: Candidate, view: RequestView, output_characters: int) -> int | None:
    """The most a stream at this point can cost by the end of its next increment.

    Only the caller's own limit caps it: an assumed one would stop holding money while tokens still arrive. Reasoning of
    a provider's model is billed but rarely sent, so for such models the full bound is held at once.
    """
    if candidate.speed is None and REASONING in candidate.supports:
        if view.max_output_tokens is not None:
            return bound_pico_usd(candidate, view)
        unseen = OUTPUT_BOUND_TOKENS * view.choices
        return _most(candidate, view, round(output_characters / CHARACTERS_PER_TOKEN) + unseen)
    to_come = round(output_characters / CHARACTERS_PER_TOKEN) + INCREMENT_TOKENS
    is_limited = view.max_output_tokens is not None
    return _most(candidate, view, min(longest_output(view), to_come) if is_limited else to_come)


def longest_output(view: RequestView) -> int:
    """In tokens, for all choices together; assumed if the caller set no limit."""
    if view.most_output_tokens is not None:
        return view.most_output_tokens
    limit = OUTPUT_BOUND_TOKENS if view.max_output_tokens is None else view.max_output_tokens
    return limit * view.choices


def unseen_tokens(
    candidate: Candidate, view: RequestView, meter: Meter, ended_at: float, tokens_per_second: float
) -> int:
    """Reasoning tokens that a provider may bill for an answer without reported usage: the silence before the first
    output times the model's speed, for one choice and within the caller's own limit."""
    if candidate.speed is not None or REASONING not in candidate.supports or meter.sent_at is None:
        return 0
    spoke_at = ended_at if meter.first_output_at is None else meter.first_output_at
    thought = round(max(0.0, spoke_at - meter.sent_at) * tokens_per_second * view.choices)
    if view.max_output_tokens is None:
        return thought
    said = round(meter.output_characters / CHARACTERS_PER_TOKEN)
    return max(0, min(thought, longest_output(view) - said))


def _longest_input(candidate: Candidate, view: RequestView) -> int:
    """Twice the character-based estimate: real tokenizers differ by less. Never less than twice the whole body's size,
    for what the estimate ignores (schemas, future fields); a whole window if the body does not tell."""
    if view.most_input_tokens is not None:
        return view.most_input_tokens
    longest = max(view.input_tokens * 2, round(view.body_bytes * 2 / CHARACTERS_PER_TOKEN))
    return max(longest, candidate.context_window) if view.is_open_ended else longest


def _most(candidate: Candidate, view: RequestView, limit: int) -> int | None:
    input_tokens = _longest_input(candidate, view)
    limit += 2 * view.predicted_tokens  # twice, as for input
    if candidate.speed is not None:
        return compute_cost(candidate.speed, input_tokens, limit).total_pico_usd
    if (prices := candidate.prices) is None:
        return None
    tools, writes = view.hosted_tools, candidate.cache_writes
    try:
        most = price_bound(
            input_tokens + tools.calls * TOOL_RESULT_TOKENS + tools.longer_tokens,
            limit,
            prices,
            tool_calls=tools.calls,
            tool_kinds=tools.kinds,
            service_tier=candidate.asked_tier or view.service_tier,
            may_write_cache=prices.charges_cache_writes and view.may_write_cache,
            may_write_for_minutes=writes.by != "caller" and input_tokens >= writes.least_tokens,
            may_have_media=prices.charges_media and view.may_have_media,
            units=view.most_units,
        )
    except (UnknownServiceTier, UnknownToolPrice):
        return None
    return max(most, refusal_fee_pico_usd(prices))


def refusal_fee_pico_usd(prices: ModelPrices) -> int:
    """What is paid for a prompt that the provider's filter refuses, and then for nothing else."""
    fee = prices.per_refusal_pico_usd
    return round(fee * prices.paid_share) if fee else 0  # nearly always none: a fraction's product is slow


def compute_cost(speed: EngineSpeed, input_tokens: int, output_tokens: int) -> Cost:
    """The cost on our own engine, from its throughput curve."""
    seconds = input_tokens / speed.prefill_tokens_per_second + output_tokens * speed.step_seconds
    return price_compute(seconds, speed.gpu_hour_pico_usd)


def sum_known(one: int | None, other: int | None) -> int | None:
    """None if either is unknown."""
    return None if one is None or other is None else one + other
