"""Measures one answer as its chunks pass. The clock is passed in; nothing here knows HTTP or money."""

import msgspec
from msgspec.structs import replace

from backends.endpoints.chat_text import end_of
from backends.protocol import Chunk
from backends.usage import NO_UNITS, EngineTimings, Units, Usage

CHARACTERS_PER_TOKEN = 4.0
"""Used only where a provider reported no usage; such entries are flagged as estimated."""
WINDOWS = 16
"""The most context windows of tokens that a call may report as input or output: choices share a prompt, and the catalog
may have an older, smaller window. A higher count is the provider's error."""


MOST_TOOL_CALLS = 10_000
"""The most hosted tool calls that one answer may report. Each costs up to cents and adds a window of tokens."""


class Meter(msgspec.Struct):
    """Times are seconds of one monotonic clock. `started_at` is when the request was accepted, `sent_at` when this
    attempt at it was made. `asked_tier` is the service tier asked for, if it has a price of its own, and
    `unreported_tier` the same if the provider's answers never name it.
    """

    started_at: float
    first_output_at: float | None = None
    last_output_at: float | None = None
    output_characters: int = 0
    finish_reason: str | None = None
    usage: Usage | None = None
    timings: EngineTimings | None = None
    sent_at: float | None = None
    usage_so_far: Usage | None = None
    unreported_tier: str | None = None
    asked_tier: str | None = None

    def observe(self, chunk: Chunk, now: float) -> None:
        """Records one chunk that arrived at `now`."""
        if chunk.has_output:
            if self.first_output_at is None:
                self.first_output_at = now
            self.last_output_at = now
            self.output_characters += chunk.output_characters
        if chunk.finish_reason is not None:
            self.finish_reason = end_of(chunk.finish_reason)
        if chunk.usage is not None:
            self.usage = chunk.usage
        if chunk.timings is not None:
            self.timings = chunk.timings
        if chunk.usage_so_far is not None:
            self.usage_so_far = chunk.usage_so_far

    @property
    def time_to_first_token_seconds(self) -> float | None:
        return None if self.first_output_at is None else max(0.0, self.first_output_at - self.started_at)

    def decode_tokens_per_second(self, output_tokens: int) -> float | None:
        """(output_tokens - 1) / (last - first chunk); None when there is nothing to divide.

        The engine's own figure takes precedence: several tokens may share a chunk on the wire.
        """
        if self.timings is not None and self.timings.decode_tokens_per_second is not None:
            return self.timings.decode_tokens_per_second
        if self.first_output_at is None or self.last_output_at is None or output_tokens < 2:
            return None
        elapsed = self.last_output_at - self.first_output_at
        return (output_tokens - 1) / elapsed if elapsed > 0 else None

    def final_usage(self, input_tokens_estimate: int, context_window: int, asked: Units = NO_UNITS) -> Usage:
        """The provider's usage; without it, an estimate from the text that passed, flagged as such.

        A usage of zero tokens for an answer that has something is ignored: it would book the answer as free. So is one
        that is impossible for a model with this window, and an input of none. Of an answer that was cut off, the input
        may be known nevertheless.
        """
        usage = self._final_usage(input_tokens_estimate, context_window, asked)
        if self.unreported_tier is None or usage.service_tier is not None:
            return usage
        return replace(usage, service_tier=self.unreported_tier)

    def _final_usage(self, input_tokens_estimate: int, context_window: int, asked: Units) -> Usage:
        longest = context_window if context_window > input_tokens_estimate else input_tokens_estimate
        if self.usage is not None and not (self.first_output_at is not None and _is_of_nothing(self.usage)):
            is_sound = _are_possible(self.usage.units, asked)
            if is_sound and not _is_impossible(self.usage, longest, self.output_characters):
                if self.output_characters and not self.usage.input_tokens and input_tokens_estimate:
                    return replace(self.usage, input_tokens=input_tokens_estimate, is_estimated=True)
                return self.usage
        output_tokens, known = round(self.output_characters / CHARACTERS_PER_TOKEN), self.usage_so_far
        if self.usage is None and known is not None and not _is_impossible(known, longest, self.output_characters):
            return replace(
                known,
                input_tokens=known.input_tokens or input_tokens_estimate,
                output_tokens=max(output_tokens, known.output_tokens),
                service_tier=known.service_tier or self.asked_tier,
                charged_pico_usd=known.charged_pico_usd if known.is_estimated else None,
                is_estimated=True,
            )
        return Usage(
            input_tokens=input_tokens_estimate,
            output_tokens=output_tokens,
            service_tier=self.asked_tier,
            is_estimated=True,
        )


def _is_impossible(usage: Usage, longest: int, output_characters: int) -> bool:
    """A provider's own tools add their results to the input, call after call; each character received may be a
    token."""
    calls = usage.web_searches + usage.file_searches + usage.other_tool_calls
    most = WINDOWS * longest * (1 + calls)
    is_too_long = usage.output_tokens > most and usage.output_tokens > output_characters
    return calls > MOST_TOOL_CALLS or usage.input_tokens > most or is_too_long


def _are_possible(units: Units, asked: Units) -> bool:
    """Images and searches are bounded by the request; audio is not, since a caller could disguise its length."""
    return units.images <= WINDOWS * asked.images and units.search_units <= WINDOWS * asked.search_units


def _is_of_nothing(usage: Usage) -> bool:
    has_others = usage.units != NO_UNITS or usage.charged_pico_usd is not None
    return usage.input_tokens == usage.output_tokens == 0 and not has_others
