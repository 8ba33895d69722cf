"""Limits the number of values in a JSON body, since parsing blocks the event loop. Pure.

Millions of empty objects fit into the megabytes allowed for a long prompt: they blocked a worker for a minute.
"""

from typing import Final

from gateway.errors import InvalidRequest

MOST_CONTAINERS: Final = 100_000
"""Objects and lists: as many messages as Anthropic takes, 50 times as many as OpenAI does."""
MOST_VALUES: Final = 1_000_000
"""Of all kinds, and names of members: a widest window of tokens as numbers."""
_ALWAYS_FEW_BYTES: Final = 2 * MOST_CONTAINERS


def require_bearable(body: bytes) -> None:
    """Raises InvalidRequest. What stands in strings counts for nothing."""
    if len(body) <= _ALWAYS_FEW_BYTES or _is_few(body):
        return
    if b"\\" in body:
        body = body.replace(b"\\\\", b"").replace(b'\\"', b"")  # what is left of quotes begins and ends strings
    if body.count(b'"') > 2 * MOST_VALUES or not _is_few(b"".join(body.split(b'"')[::2])):
        raise InvalidRequest(
            f"The body is made of too many values: at most {MOST_CONTAINERS:,} objects and lists, and {MOST_VALUES:,} "
            "values in all. Send them in several requests.",
            code="too_many_values",
        )


def _is_few(text: bytes) -> bool:
    return text.count(b"{") + text.count(b"[") <= MOST_CONTAINERS and text.count(b",") <= MOST_VALUES
