"""What of a prompt will be sent again, so that having it cached pays; and what caching it costs now. Pure.

A write to the cache costs a quarter more than input, a read a tenth of it (docs/economics.md): one more use within the
cache's life pays for it, none does not.
"""

from typing import Literal

from gateway.ledger.entry import Facts
from gateway.routing.snapshot import CacheWrites

CacheMarks = Literal["", "beginning", "conversation"]
"""What the gateway has marked: nothing, the tools and system prompt, or these and all that was said so far."""


def tokens_to_repeat(
    *, input_tokens: int, sent_tokens: int, first_turn_tokens: int, beginning_tokens: int, opens_tool_use: bool
) -> int:
    """How much of a prompt its sender is expected to send again within minutes.

    `sent_tokens`: so much of it came from the same tenant within the life of a cache. More than the first turn: a
    conversation, which goes on. The first turn alone: its next user will bring the beginning, `beginning_tokens` (0
    where it is no system prompt). Nothing: a call by itself, or one whose beginning is new every time, as with the time
    of day in it; only if it offers tools for the first time (`opens_tool_use`) will the tool's result bring it back.
    """
    if sent_tokens > first_turn_tokens or opens_tool_use:
        return input_tokens
    return min(beginning_tokens, input_tokens) if sent_tokens else 0


def marks_for(facts: Facts, writes: CacheWrites) -> CacheMarks:
    """What to mark of this request at a model."""
    if writes.by != "gateway" or facts.repeated_tokens < writes.least_tokens:
        return ""
    return "conversation" if facts.repeated_tokens >= facts.input_tokens else "beginning"


def written_tokens(facts: Facts, writes: CacheWrites, cached_tokens: int) -> int:
    """How much of the prompt is written to a model's cache unasked by its caller, `cached_tokens` being there."""
    if writes.by == "caller":
        return 0
    kept = facts.input_tokens if writes.by == "provider" else facts.repeated_tokens
    return kept - cached_tokens if writes.least_tokens <= kept > cached_tokens else 0
