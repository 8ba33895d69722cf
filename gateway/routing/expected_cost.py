"""What a request is expected to cost at a candidate. Pure arithmetic in pico-USD."""

from backends.usage import NO_UNITS, Usage
from gateway.ledger.entry import Facts
from gateway.pricing.catalogue import ModelPrices
from gateway.pricing.price import UnknownServiceTier, UnknownUnitPrice, price, price_compute, price_text_tokens
from gateway.routing.prompt_reuse import written_tokens
from gateway.routing.snapshot import ON_DEMAND, Candidate, EngineSpeed

DEFAULT_OUTPUT_TOKENS = 300.0
"""Used when the classifier predicts no length for a model: the answer length of docs/economics.md's worked example."""


def predicted_output_tokens(facts: Facts, model: str) -> int:
    """The classifier's expected answer length, never above the caller's own limit."""
    return answer_tokens(facts.lengths_of([model])[0], facts.max_output_tokens)


def answer_tokens(expected: float | None, limit: int | None) -> int:
    predicted = DEFAULT_OUTPUT_TOKENS if expected is None else expected
    tokens = round(predicted if limit is None or predicted < limit else limit)
    return tokens if tokens > 1 else 1  # a comparison, as calling `max` is slower and this runs per candidate


def gpu_seconds(facts: Facts, model: str, speed: EngineSpeed) -> float:
    """w = (1-h)·n_in/P + n_out·t(N*)/N*  (docs/economics.md), with h from the prefix known to be warm."""
    fresh = max(0, facts.input_tokens - facts.warm_tokens.get(model, 0))
    output = predicted_output_tokens(facts, model)
    return fresh / speed.prefill_tokens_per_second + output * speed.decode_seconds_per_token


def is_slot_free(facts: Facts, model: str) -> bool:
    """True when the backend's state is unknown: hosted providers do not report it."""
    state = facts.backend_state.get(model)
    return state is None or state[0] > 0


def expected_cost(facts: Facts, candidate: Candidate, output_tokens: int) -> int | None:
    """The cost that should decide, in pico-USD; None when no price is known.

    Hosted: the provider's price for the predicted usage, with the warm prefix at the cached rate, and what is written
    to the cache without the caller asking at the write rate. Own engine: nothing while a slot is free, since the hour
    is paid anyway; the price of the GPU-seconds when none is.
    """
    if candidate.speed is not None:
        if is_slot_free(facts, candidate.name):
            return 0
        seconds = gpu_seconds(facts, candidate.name, candidate.speed)
        return price_compute(seconds, candidate.speed.gpu_hour_pico_usd).total_pico_usd
    if candidate.prices is None:
        return None
    if facts.units != NO_UNITS:
        return _cost_of_media(facts, candidate, candidate.prices)
    cached = min(facts.warm_tokens.get(candidate.name, 0), facts.input_tokens)
    writes, tier = candidate.cache_writes, candidate.asked_tier
    written = 0 if writes is ON_DEMAND else written_tokens(facts, writes, cached)
    if tier is None:
        simple = price_text_tokens(facts.input_tokens, cached, output_tokens, candidate.prices, written)
        if simple is not None:
            return simple
    usage = Usage(
        input_tokens=facts.input_tokens,
        cached_input_tokens=cached,
        cache_write_5m_tokens=written,
        output_tokens=output_tokens,
        service_tier=tier,
    )
    try:
        return price(usage, candidate.prices).total_pico_usd
    except (UnknownServiceTier, UnknownUnitPrice):
        return None


def media_usage(facts: Facts, model: str) -> Usage:
    """Expected usage of images, speech, a transcript or a ranking, assuming that all tokens are of one kind."""
    units = facts.units
    output = 0 if units.search_units else predicted_output_tokens(facts, model)
    return Usage(
        input_tokens=facts.input_tokens,
        audio_input_tokens=facts.input_tokens if units.audio_milliseconds else 0,
        output_tokens=output,
        audio_output_tokens=output if units.characters else 0,
        image_output_tokens=output if units.images else 0,
        units=units,
    )


def _cost_of_media(facts: Facts, candidate: Candidate, prices: ModelPrices) -> int | None:
    try:
        return price(media_usage(facts, candidate.name), prices).total_pico_usd
    except UnknownUnitPrice:
        return None


def expected_time_to_first_token_seconds(facts: Facts, candidate: Candidate) -> float:
    """Queueing time as reported by the backend, plus prefill of what is not cached."""
    state = facts.backend_state.get(candidate.name)
    queue_seconds = state[1] if state is not None else 0.0
    if candidate.speed is None:
        return queue_seconds + candidate.typical_time_to_first_token_seconds
    fresh = max(0, facts.input_tokens - facts.warm_tokens.get(candidate.name, 0))
    return queue_seconds + fresh / candidate.speed.prefill_tokens_per_second
