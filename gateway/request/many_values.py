"""Limits the number of values in a JSON body, since parsing blocks the event loop. Pure.

Millions of empty objects fit into the megabytes allowed for a long prompt: they blocked a worker for a minute.
"""

from typing import Final

from gateway.errors import InvalidRequest

MOST_CONTAINERS: Final = 100_000
"""Objects and lists: as many as Anthropic accepts messages, and 50 times as many as OpenAI does."""
MOST_VALUES: Final = 1_000_000
"""Values of all kinds, and member names: enough for the widest context window given as token ids."""
_ALWAYS_FEW_BYTES: Final = 2 * MOST_CONTAINERS


def require_bearable(body: bytes) -> None:
    """Raises InvalidRequest. The content of strings does not count."""
    if len(body) <= _ALWAYS_FEW_BYTES or _is_few(body):
        return
    if b"\\" in body:
        body = body.replace(b"\\\\", b"").replace(b'\\"', b"")  # the remaining quotes begin and end strings
    if body.count(b'"') > 2 * MOST_VALUES or not _is_few(b"".join(body.split(b'"')[::2])):
        raise InvalidRequest(
            f"The body is made of too many values: at most {MOST_CONTAINERS:,} objects and lists, and {MOST_VALUES:,} "
            "values in all. Send them in several requests.",
            code="too_many_values",
        )


def _is_few(text: bytes) -> bool:
    return text.count(b"{") + text.count(b"[") <= MOST_CONTAINERS and text.count(b",") <= MOST_VALUES
