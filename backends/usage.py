"""What a call consumed, in our own token classes. Every wire format is normalised to this; money is unknown here."""

from dataclasses import dataclass
from typing import Final

import msgspec


class Units(msgspec.Struct, frozen=True, array_like=True):
    """Billing units other than tokens: images generated, audio transcribed, characters spoken, and rerank searches (up
    to a hundred documents each). Counted even if tokens are what is billed. A struct, since the ledger records it: an
    older version reads a struct that has grown, but not a tuple."""

    images: int = 0
    audio_milliseconds: int = 0
    characters: int = 0
    search_units: int = 0


NO_UNITS: Final = Units()


class Usage(msgspec.Struct, frozen=True):
    """Token counts of one call. A struct because a decision creates one per candidate, and a replay millions.

    `input_tokens` includes cache reads and writes; `output_tokens` includes reasoning, audio and images: the other
    token counts are parts of these two. `is_estimated`: the provider did not report the numbers.
    """

    input_tokens: int = 0
    cached_input_tokens: int = 0
    cache_write_5m_tokens: int = 0
    cache_write_1h_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    audio_input_tokens: int = 0
    audio_output_tokens: int = 0
    image_input_tokens: int = 0
    image_output_tokens: int = 0
    cached_audio_tokens: int = 0
    """Audio among the cached input, where the provider tells it apart."""
    service_tier: str | None = None
    is_estimated: bool = False
    web_searches: int = 0
    """Made by the provider for the answer and billed in addition to its tokens."""
    file_searches: int = 0
    """The same, in files that the provider stores."""
    other_tool_calls: int = 0
    """Calls of the provider's other tools (code interpreter, images, ...), whose price is not reported."""
    units: Units = NO_UNITS
    charged_pico_usd: int | None = None
    """What the provider says that it charges for the call, where it does."""


@dataclass(frozen=True, slots=True)
class EngineTimings:
    """What our own engine reports with its usage (`x_breakeven`), so that GPU seconds can be priced.

    `gpu_seconds` is this request's share of the step times: each step's duration is divided among its requests by the
    tokens computed. `queue_seconds` runs from the request's arrival until it is first scheduled.
    """

    gpu_seconds: float
    queue_seconds: float
    prefill_tokens_per_second: float | None = None
    decode_tokens_per_second: float | None = None
    time_to_first_token_seconds: float | None = None
