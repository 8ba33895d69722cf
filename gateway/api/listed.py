"""Lists with OpenAI's pagination: up to `limit` items after a given id."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from fastapi import Query
from pydantic import BaseModel

NAME = r"^[A-Za-z0-9_-]{1,64}$"


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
