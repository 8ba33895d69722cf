"""Converts a snapshot of rules, prices and engines into what a replay needs: prices, and how models answer."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

import msgspec

from backends.usage import Usage
from gateway.economics.replay.log import Served
from gateway.economics.replay.outcome import ModelOutcome
from gateway.economics.replay.replay import PriceServed
from gateway.ledger.entry import NO_MEDIA, Media
from gateway.pricing.price import PricingError, price, price_compute
from gateway.routing.snapshot import Candidate


def price_with(candidates: Mapping[str, Candidate]) -> PriceServed:
    """Tokens at the provider's price at the time, GPU-seconds at the engine's hourly rent; None for unknown models.

    A service tier is kept only at the provider that named it: any other serves at its ordinary tier, or at the one that
    its block always asks for.
    """

    def price_served(model: str, served: Served) -> int | None:
        candidate = candidates.get(model)
        if candidate is None:
            return None
        if candidate.speed is not None:
            return price_compute(served.gpu_seconds, candidate.speed.gpu_hour_pico_usd).total_pico_usd
        if candidate.prices is None:
            return None
        usage = Usage(
            input_tokens=served.input_tokens,
            cached_input_tokens=served.cached_input_tokens,
            cache_write_5m_tokens=served.cache_write_tokens,
            output_tokens=served.output_tokens,
            service_tier=served.service_tier if served.provider == candidate.provider else candidate.asked_tier,
            web_searches=served.web_searches,
            file_searches=served.file_searches,
            other_tool_calls=served.other_tool_calls,
        )
        if served.media is not NO_MEDIA:
            usage = _with_media(usage, served.media)
        try:
            return price(usage, candidate.prices.at(served.at_us)).total_pico_usd
        except PricingError:  # no such tier or tool there, or contradictory counts in an old row: unpriced
            return None

    return price_served


def _with_media(usage: Usage, media: Media) -> Usage:
    """Caps media tokens at the token counts: another model may read and write fewer."""
    audio_in = min(media.audio_input_tokens, usage.input_tokens)
    audio_out = min(media.audio_output_tokens, usage.output_tokens)
    return msgspec.structs.replace(
        usage,
        audio_input_tokens=audio_in,
        cached_audio_tokens=min(media.cached_audio_tokens, audio_in, usage.cached_input_tokens),
        image_input_tokens=min(media.image_input_tokens, usage.input_tokens - audio_in),
        audio_output_tokens=audio_out,
        image_output_tokens=min(media.image_output_tokens, usage.output_tokens - audio_out),
        units=media.units,
    )


def outcomes_with(
    candidates: Iterable[Candidate], ratios: Mapping[str, tuple[float, float]] | None = None
) -> dict[str, ModelOutcome]:
    """How each candidate answers; `ratios` are (input, output) from `learn_lengths`, 1 where missing."""
    outcomes: dict[str, ModelOutcome] = {}
    for candidate in candidates:
        input_ratio, output_ratio = (ratios or {}).get(candidate.name, (1.0, 1.0))
        outcome = ModelOutcome(
            input_ratio,
            output_ratio,
            candidate.typical_time_to_first_token_seconds,
            cache_writes=candidate.cache_writes,
            asked_tier=candidate.asked_tier,
        )
        speed = candidate.speed
        if speed is not None:
            outcome = replace(
                outcome,
                base_seconds=0.0,
                prefill_tokens_per_second=speed.prefill_tokens_per_second,
                step_seconds=speed.step_seconds,
                gpu_seconds_per_fresh_input_token=1.0 / speed.prefill_tokens_per_second,
                gpu_seconds_per_output_token=speed.decode_seconds_per_token,
            )
        outcomes[candidate.name] = outcome
    return outcomes
