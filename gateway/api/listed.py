"""Lists with OpenAI's pagination: up to `limit` items after a given id, in either order."""

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

from fastapi import Query
from pydantic import BaseModel

from gateway.errors import InvalidRequest

NAME = r"^[A-Za-z0-9_-]{1,64}$"
Order = Literal["asc", "desc"]
USUAL_ITEMS: Final = 20
MOST_ITEMS: Final = 100


class Listed(BaseModel):
    """A page. `first_id` and `last_id` are null if it is empty."""

    object: Literal["list"] = "list"
    data: list[Any]
    first_id: str | None
    last_id: str | None
    has_more: bool


def listed(rows: Sequence[dict[str, Any]], *, has_more: bool) -> Listed:
    """`rows` are objects with an `id`."""
    ids = [row["id"] for row in rows]
    return Listed(
        data=list(rows), first_id=ids[0] if ids else None, last_id=ids[-1] if ids else None, has_more=has_more
    )


After = Annotated[str | None, Query(pattern=NAME, description="The last id of the previous page.")]


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
