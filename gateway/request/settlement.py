"""Makes the ledger entry from the measurements: usage, cost with bounds, and latencies. Pure: reads no clock."""

from dataclasses import dataclass

import msgspec
from msgspec.structs import astuple, replace

from backends.errors import BackendError, UnreadableAnswer
from backends.usage import NO_UNITS, Units, Usage
from gateway.ledger.entry import NO_MEDIA, Attempt, Checkpoint, Cost, Entry, Intent, Media, PaidTo, Status
from gateway.pricing.charged import charged
from gateway.pricing.price import PricingError, price, price_compute
from gateway.request.cost_bounds import bound_pico_usd, compute_cost, longest_output, refusal_fee_pico_usd, sum_known
from gateway.request.metering import CHARACTERS_PER_TOKEN, Meter
from gateway.request.view import RequestView
from gateway.routing.expected_cost import media_usage
from gateway.routing.snapshot import Candidate


@dataclass(frozen=True, slots=True)
class ExtraCost:
    """What attempts whose answer was not passed on cost or may have cost: an estimate (None: no price known), the most,
    and the least."""

    estimate_pico_usd: int | None = 0
    most_pico_usd: int | None = 0
    least_pico_usd: int = 0

    def plus(self, other: "ExtraCost") -> "ExtraCost":
        return ExtraCost(
            sum_known(self.estimate_pico_usd, other.estimate_pico_usd),
            sum_known(self.most_pico_usd, other.most_pico_usd),
            self.least_pico_usd + other.least_pico_usd,
        )

    def minus(self, part: "ExtraCost") -> "ExtraCost":
        """Subtracts a part that `plus` added; amounts that it made unknown stay unknown."""
        return ExtraCost(
            _less(self.estimate_pico_usd, part.estimate_pico_usd),
            _less(self.most_pico_usd, part.most_pico_usd),
            self.least_pico_usd - part.least_pico_usd,
        )

    @property
    def is_exact(self) -> bool:
        return self.least_pico_usd == self.estimate_pico_usd == self.most_pico_usd


NO_EXTRA = ExtraCost()
NOTHING = Usage()


class Outcome(msgspec.Struct, frozen=True):
    """How a request ended, beyond what its meter saw."""

    status: Status
    http_status: int
    candidate: Candidate
    attempts: tuple[Attempt, ...]
    ended_at: float
    error: str | None = None
    may_have_been_billed: bool = False
    unseen_tokens: int = 0
    """Estimated reasoning tokens that were neither sent nor reported."""
    extra: ExtraCost = NO_EXTRA


def unanswered_cost(candidate: Candidate, view: RequestView, meter: Meter) -> ExtraCost:
    """The cost of an attempt that was sent and abandoned: its prompt was read, and up to a whole answer may be billed.

    Our own engine bills nobody: what it computed in vain is part of its idle rent.
    """
    if candidate.speed is not None:
        return NO_EXTRA
    cost = _cost(candidate, _used(candidate, view, meter), None)
    return ExtraCost(cost.total_pico_usd if cost else None, bound_pico_usd(candidate, view))


def refused_cost(candidate: Candidate, view: RequestView, meter: Meter) -> ExtraCost:
    """The cost of a complete answer that failed verification: exactly what was reported. Our own engine bills nobody,
    as above."""
    if candidate.speed is not None:
        return NO_EXTRA
    usage = _used(candidate, view, meter)
    cost = _cost(candidate, usage, None)
    if cost is None or usage.is_estimated:
        return ExtraCost(cost.total_pico_usd if cost else None, bound_pico_usd(candidate, view))
    return ExtraCost(cost.total_pico_usd, cost.total_pico_usd, cost.total_pico_usd)


def filtered_cost(candidate: Candidate, view: RequestView) -> ExtraCost:
    """The fee for a prompt that the provider's filter refused. xAI's page names it for responses; of chats it is an
    estimate."""
    fee = 0 if candidate.prices is None else refusal_fee_pico_usd(candidate.prices)
    if not fee:
        return NO_EXTRA
    return ExtraCost(fee, fee, fee if view.operation == "responses" else 0)


def _used(candidate: Candidate, view: RequestView, meter: Meter) -> Usage:
    usage = meter.final_usage(view.input_tokens, candidate.context_window, view.units)
    return replace(usage, units=view.units) if usage.is_estimated else usage


def unread_cost(candidate: Candidate, view: RequestView, meter: Meter, error: BackendError) -> ExtraCost:
    """The cost of an answer that could not be read: what it reported, if that was readable; otherwise as if abandoned,
    with as many tokens as its length allows."""
    if error.usage is not None:
        return refused_cost(candidate, view, msgspec.structs.replace(meter, usage=error.usage))
    longest = round(longest_output(view) * CHARACTERS_PER_TOKEN)
    part = error.output_characters if isinstance(error, UnreadableAnswer) else 0
    characters = max(meter.output_characters, min(part, longest))
    return unanswered_cost(candidate, view, msgspec.structs.replace(meter, output_characters=characters))


def paid_to(candidate: Candidate, extra: ExtraCost) -> PaidTo | None:
    """Who is paid for an attempt of that cost; None if it costs nothing."""
    if extra == NO_EXTRA:
        return None
    return PaidTo(
        candidate.provider,
        candidate.upstream_model,
        candidate.is_simulated,
        extra.least_pico_usd,
        extra.most_pico_usd,
    )


def checkpoint_of(intent: Intent, candidate: Candidate, meter: Meter) -> Checkpoint:
    """The least that a stream in progress has cost so far."""
    output_tokens = round(meter.output_characters / CHARACTERS_PER_TOKEN)
    usage = Usage(intent.decision.facts.input_tokens, output_tokens=output_tokens, service_tier=meter.asked_tier)
    return Checkpoint(intent.request_id, output_tokens, _least(candidate, usage))


def settle_entry(intent: Intent, meter: Meter, outcome: Outcome) -> Entry:
    """The one entry of a request. Never raises on what a provider reported: malformed usage is stored as estimated."""
    candidate = outcome.candidate
    usage = _usage(intent, meter, outcome)
    gpu_seconds = _gpu_seconds(candidate, usage, meter)
    cost = _cost(candidate, usage, gpu_seconds)
    lower, upper = _bounds(intent, candidate, usage, cost)
    extra, timings, lasted = outcome.extra, meter.timings, outcome.ended_at - meter.started_at
    if extra is not NO_EXTRA:
        cost, upper = _with_extra(cost, extra), sum_known(upper, extra.most_pico_usd)
        lower = sum_known(lower, extra.least_pico_usd)
    return Entry(  # by position: Python collects more than fifteen keywords in a dictionary first
        intent,
        outcome.status,
        candidate.name,
        candidate.backend,
        candidate.provider,
        candidate.upstream_model,
        usage.input_tokens,
        usage.cached_input_tokens,
        usage.cache_write_5m_tokens,
        usage.cache_write_1h_tokens,
        usage.output_tokens,
        usage.reasoning_tokens,
        usage.is_estimated or not (extra is NO_EXTRA or extra.is_exact),
        candidate.is_simulated,
        usage.service_tier,
        cost,
        lower,
        upper,
        gpu_seconds or 0.0,
        timings.queue_seconds if timings else None,
        _first_token_seconds(intent, meter),
        timings.prefill_tokens_per_second if timings else None,
        _decode_speed(intent, meter, usage),
        lasted if lasted > 0.0 else 0.0,  # a clock may be set back
        meter.finish_reason,
        outcome.http_status,
        outcome.error,
        outcome.attempts,
        usage.web_searches,
        usage.file_searches,
        usage.other_tool_calls,
        _media(usage),
        usage.charged_pico_usd,
    )


def _media(usage: Usage) -> Media:
    tokens = (
        usage.audio_input_tokens,
        usage.audio_output_tokens,
        usage.image_input_tokens,
        usage.image_output_tokens,
    )
    if not any(tokens) and usage.units == NO_UNITS:
        return NO_MEDIA
    return Media(*tokens, *astuple(usage.units), cached_audio_tokens=usage.cached_audio_tokens)


def _usage(intent: Intent, meter: Meter, outcome: Outcome) -> Usage:
    if meter.usage is not None or meter.first_output_at is not None:
        facts = intent.decision.facts
        usage = meter.final_usage(facts.input_tokens, outcome.candidate.context_window, facts.units)
        if usage.is_estimated and facts.units != NO_UNITS:
            return _expected(intent, outcome.candidate, usage.units)
        if _contradicts_itself(usage):
            return replace(usage, is_estimated=True)
        return _with_thoughts(usage, outcome.unseen_tokens) if meter.usage is None else usage
    if outcome.may_have_been_billed:
        usage = meter.final_usage(intent.decision.facts.input_tokens, outcome.candidate.context_window)
        if intent.decision.facts.units != NO_UNITS:
            return _expected(intent, outcome.candidate, NO_UNITS)
        return _with_thoughts(usage, outcome.unseen_tokens)
    return NOTHING


def _expected(intent: Intent, candidate: Candidate, counted: Units) -> Usage:
    """Expected usage of images, speech, a transcript or a ranking if the provider reported none, except for units
    already `counted`."""
    expected = media_usage(intent.decision.facts, candidate.name)
    return replace(expected, units=expected.units if counted == NO_UNITS else counted, is_estimated=True)


def _with_thoughts(usage: Usage, tokens: int) -> Usage:
    if not tokens or usage.reasoning_tokens:  # the provider has reported them
        return usage
    return replace(usage, output_tokens=usage.output_tokens + tokens, reasoning_tokens=tokens)


def _contradicts_itself(usage: Usage) -> bool:
    cached = usage.cached_input_tokens + usage.cache_write_5m_tokens + usage.cache_write_1h_tokens
    return cached > usage.input_tokens or usage.reasoning_tokens > usage.output_tokens


def _gpu_seconds(candidate: Candidate, usage: Usage, meter: Meter) -> float | None:
    """Measured by the engine, or computed from its throughput curve if it could not report any more.

    In whole microseconds, as stored, so that the exact cost can be recomputed from the entry.
    """
    if candidate.speed is None:
        return None
    if meter.timings is not None:
        return round(meter.timings.gpu_seconds, 6)
    prefill = usage.input_tokens / candidate.speed.prefill_tokens_per_second
    return round(prefill + usage.output_tokens * candidate.speed.decode_seconds_per_token, 6)


def _cost(candidate: Candidate, usage: Usage, gpu_seconds: float | None) -> Cost | None:
    if candidate.speed is not None:
        if gpu_seconds is None:
            return compute_cost(candidate.speed, usage.input_tokens, usage.output_tokens)
        return price_compute(gpu_seconds, candidate.speed.gpu_hour_pico_usd)
    if usage == NOTHING:
        return Cost()
    if usage.charged_pico_usd is not None:
        return charged(usage, candidate.prices)
    if candidate.prices is None:
        return None
    try:
        return price(usage, candidate.prices)
    except PricingError:
        return None


def _bounds(intent: Intent, candidate: Candidate, usage: Usage, cost: Cost | None) -> tuple[int | None, int | None]:
    exact = cost.total_pico_usd if cost is not None else None
    if not usage.is_estimated or usage.charged_pico_usd is not None:
        known = _without_unpriced_tools(candidate, usage) if exact is None else None
        return (exact if known is None else known), exact
    lower = _least(candidate, _halved(usage))
    bound = intent.cost_bound_pico_usd
    upper = bound if exact is None or bound is None else max(exact, bound)
    return (lower if exact is None or lower is None else min(exact, lower)), upper


def _least(candidate: Candidate, usage: Usage) -> int | None:
    """Its cost in its service tier or the ordinary one, whichever is less: who asks for one may get the other."""
    costs = (_cost(candidate, replace(usage, service_tier=tier), None) for tier in {usage.service_tier, None})
    return min((cost.total_pico_usd for cost in costs if cost is not None), default=None)


def _halved(usage: Usage) -> Usage:
    """The least that an estimate stands for. Images and characters were counted exactly; the length of a recording and
    the number of parts of a document were estimated."""
    fewer = {
        name: getattr(usage, name) // 2
        for name in ("input_tokens", "audio_input_tokens", "image_input_tokens", "audio_output_tokens")
    }
    return replace(
        usage,
        **fewer,
        output_tokens=max(0, usage.output_tokens - usage.reasoning_tokens) // 2,
        image_output_tokens=usage.image_output_tokens // 2,
        reasoning_tokens=0,
        cached_input_tokens=0,
        cache_write_5m_tokens=0,
        cache_write_1h_tokens=0,
        units=replace(
            usage.units,
            audio_milliseconds=usage.units.audio_milliseconds // 2,
            search_units=(usage.units.search_units + 1) // 2,
        ),
    )


def _without_unpriced_tools(candidate: Candidate, usage: Usage) -> int | None:
    """The known part of a cost that hosted tools without a price made unknown; None if no part is known."""
    prices = candidate.prices
    if prices is None:
        return None
    web = usage.web_searches if prices.web_search_pico_usd is not None else 0
    files = usage.file_searches if prices.file_search_pico_usd is not None else 0
    cost = _cost(candidate, replace(usage, web_searches=web, file_searches=files, other_tool_calls=0), None)
    return cost.total_pico_usd if cost is not None else None


def _less(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one - other


def _with_extra(cost: Cost | None, extra: ExtraCost) -> Cost | None:
    """The whole request's cost: attempts without an answer are added to the `other` line."""
    more = extra.estimate_pico_usd
    if cost is None or more is None:
        return None
    if not more:
        return cost
    return replace(cost, other_pico_usd=cost.other_pico_usd + more, list_pico_usd=cost.list_pico_usd + more)


def _first_token_seconds(intent: Intent, meter: Meter) -> float | None:
    """Measured here for streams. A non-streamed answer arrives whole: only the engine knows its first-token time."""
    if intent.is_stream:
        return meter.time_to_first_token_seconds
    return meter.timings.time_to_first_token_seconds if meter.timings else None


def _decode_speed(intent: Intent, meter: Meter, usage: Usage) -> float | None:
    is_drawn_or_spoken = intent.decision.facts.units != NO_UNITS  # billed in tokens, but not decoded one by one
    if is_drawn_or_spoken or (not intent.is_stream and meter.timings is None):
        return None
    return meter.decode_tokens_per_second(usage.output_tokens)
