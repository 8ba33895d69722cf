"""What budgets had spent elsewhere in the window in which they came here: it counts toward the limit until that window
ends, and no request in the ledger tells of it. It makes the limit smaller, not the books larger: what is newly heard of
holds in every worker at once, and nobody's lease outlasts it. Values only; knows no store."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

OpeningScope = Literal["key", "team", "project"]


@dataclass(frozen=True, slots=True)
class Opening:
    """`name` is a key's id, a team or a project; `window_id` is as gateway.limits.values names it."""

    scope: OpeningScope
    name: str
    window_id: str
    pico_usd: int


Openings = Callable[[Collection[str]], Awaitable[Sequence[Opening]]]
"""Those of windows with these names."""


async def no_openings(windows: Collection[str]) -> Sequence[Opening]:
    """Of whoever begins here."""
    return ()


def by_budget(openings: Sequence[Opening]) -> Mapping[tuple[str, str, str], int]:
    """In pico-USD, by scope, name and window."""
    return {(one.scope, one.name, one.window_id): one.pico_usd for one in openings}
