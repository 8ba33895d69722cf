"""What an imported budget had already spent elsewhere in its current window. No ledger entry covers it, so it reduces
the limit until the window ends instead of raising the sums: a lower limit takes effect in every worker at once, and no
lease outlasts it. Values only; knows no store."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

OpeningScope = Literal["key", "team", "project"]


@dataclass(frozen=True, slots=True)
class Opening:
    """`name` is a key's id, a team or a project; `window_id` is a gateway.limits.values.window_id."""

    scope: OpeningScope
    name: str
    window_id: str
    pico_usd: int


Openings = Callable[[Collection[str]], Awaitable[Sequence[Opening]]]
"""The openings of windows with these ids."""


async def no_openings(windows: Collection[str]) -> Sequence[Opening]:
    """For deployments without imported budgets."""
    return ()


def by_budget(openings: Sequence[Opening]) -> Mapping[tuple[str, str, str], int]:
    """In pico-USD, by scope, name and window."""
    return {(one.scope, one.name, one.window_id): one.pico_usd for one in openings}
