"""`/v1/models` as Anthropic's clients read it: in pages. Pure."""

from collections.abc import Sequence

from pydantic import BaseModel, Field

from gateway.errors import InvalidRequest


class PageAsked(BaseModel):
    """What Anthropic's clients ask for; without a limit there is one page with all of them."""

    limit: int | None = Field(default=None, ge=1, le=1000)
    after_id: str | None = None
    before_id: str | None = None


def anthropic_page(names: Sequence[str], asked: PageAsked) -> dict[str, object]:
    """`has_more` looks the way that was asked: beyond the page, or with `before_id` in front of it."""
    limit = asked.limit or len(names)
    if asked.before_id is not None:
        end = _place(names, "before_id", asked.before_id)
        start = max(0, end - limit)
        has_more = start > 0
    else:
        start = 0 if asked.after_id is None else _place(names, "after_id", asked.after_id) + 1
        end = start + limit
        has_more = end < len(names)
    page = names[start:end]
    first, last = (page[0], page[-1]) if page else (None, None)
    return {"data": [*map(anthropic_model, page)], "has_more": has_more, "first_id": first, "last_id": last}


def anthropic_model(name: str) -> dict[str, object]:
    """One row."""
    return {"type": "model", "id": name, "display_name": name, "created_at": "1970-01-01T00:00:00Z"}


def _place(names: Sequence[str], parameter: str, name: str) -> int:
    if name not in names:
        raise InvalidRequest(f"{parameter} names none of these models: {name[:64]!r}.", param=parameter)
    return names.index(name)
