"""Limits the number of values in a JSON body, since parsing blocks the event loop. Pure.

Millions of empty objects fit into the megabytes allowed for a long prompt: they blocked a worker for a minute.
"""

from typing import Final

from backends.value_counts import MostValues
from gateway.errors import InvalidRequest

MOST: Final = MostValues(containers=100_000, names=300_000, values=1_000_000)
"""As many objects as Anthropic accepts messages, and 50 times as many as OpenAI does; enough values for the widest
context window given as token ids."""


def require_bearable(body: bytes) -> None:
    """Raises InvalidRequest. The content of strings does not count."""
    if not MOST.allow(body):
        raise InvalidRequest(
            f"The body has too many values: at most {MOST.containers:,} objects and lists, {MOST.names:,} names "
            f"of members, and {MOST.values:,} values in all. Send them in several requests.",
            code="too_many_values",
        )
