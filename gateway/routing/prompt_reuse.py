"""Which part of a prompt will be sent again, so that caching it pays; and what caching costs now. Pure.

A cache write costs a quarter more than input, a read a tenth of it (docs/economics.md): one reuse within the cache's
lifetime pays for it, none does not.
"""

from typing import Literal

from gateway.ledger.entry import Facts
from gateway.routing.snapshot import CacheWrites

CacheMarks = Literal["", "beginning", "conversation"]
"""What the gateway marks: nothing, the tools and system prompt, or these and the conversation so far."""


def tokens_to_repeat(
    *, input_tokens: int, sent_tokens: int, first_turn_tokens: int, beginning_tokens: int, opens_tool_use: bool
) -> int:
    """How much of a prompt its sender is expected to send again within minutes.

    `sent_tokens`: how much of it the same tenant sent within a cache's lifetime. More than the first turn means a
    conversation, which goes on. Just the first turn: its next use will bring the beginning, `beginning_tokens` (0 if
    that is no system prompt). Nothing: a single call, or one whose beginning is always new, as with the time of day in
    it; only offering tools for the first time (`opens_tool_use`) will bring it back, with the tool's result.
    """
    if sent_tokens > first_turn_tokens or opens_tool_use:
        return input_tokens
    return min(beginning_tokens, input_tokens) if sent_tokens else 0


def marks_for(facts: Facts, writes: CacheWrites) -> CacheMarks:
    """What to mark in this request at a model."""
    if writes.by != "gateway" or facts.repeated_tokens < writes.least_tokens:
        return ""
    return "conversation" if facts.repeated_tokens >= facts.input_tokens else "beginning"


def written_tokens(facts: Facts, writes: CacheWrites, cached_tokens: int) -> int:
    """How many prompt tokens are written to a model's cache without the caller asking, given `cached_tokens` there."""
    if writes.by == "caller":
        return 0
    kept = facts.input_tokens if writes.by == "provider" else facts.repeated_tokens
    return kept - cached_tokens if writes.least_tokens <= kept > cached_tokens else 0
