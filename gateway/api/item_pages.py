"""Pages of items, as OpenAI defines them: a number of items after a given one, in either order. Pure."""

from collections.abc import Sequence
from typing import Final, Literal

from gateway.errors import InvalidRequest

Order = Literal["asc", "desc"]
USUAL_ITEMS: Final = 20
MOST_ITEMS: Final = 100


def page_of(ids: Sequence[str], *, limit: int, order: Order, after: str | None, of: str) -> tuple[list[str], bool]:
    """The ids on the page, and whether more follow. `ids` are those of all items, oldest first; `of` is what they
    belong to, for error messages. Raises InvalidRequest for a bad limit or an unknown `after`."""
    if not 1 <= limit <= MOST_ITEMS:
        raise InvalidRequest(f"limit: must be 1 to {MOST_ITEMS}.", param="limit")
    ordered = list(ids) if order == "asc" else list(reversed(ids))
    first = 0
    if after is not None:
        if after not in ordered:
            raise InvalidRequest(f"after: no item of this {of} has that id.", param="after")
        first = ordered.index(after) + 1
    return ordered[first : first + limit], first + limit < len(ordered)
