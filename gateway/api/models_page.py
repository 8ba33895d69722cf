"""`/v1/models` in the paginated formats of Anthropic and Google. Pure."""

from collections.abc import Mapping, Sequence
from typing import Final

from pydantic import BaseModel, Field

from gateway.errors import InvalidRequest
from gateway.routing.rules import EMBEDDINGS
from gateway.routing.snapshot import Candidate

PREFIX: Final = "models/"
"""The prefix of model names in Google's API."""
WRITING: Final = ["generateContent", "streamGenerateContent", "countTokens"]
EMBEDDING: Final = ["embedContent", "batchEmbedContents"]


class PageAsked(BaseModel):
    """The paging parameters of Anthropic's and Google's clients. Without a limit there is one page with all models."""

    limit: int | None = Field(default=None, ge=1, le=1000)
    after_id: str | None = None
    before_id: str | None = None
    page_size: int | None = Field(default=None, ge=0, le=1000, alias="pageSize")
    page_token: str | None = Field(default=None, alias="pageToken")


def anthropic_page(names: Sequence[str], asked: PageAsked) -> dict[str, object]:
    """`has_more` concerns the direction of paging: after the page, or before it if `before_id` was given."""
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


def google_page(models: Mapping[str, Candidate | None], asked: PageAsked) -> dict[str, object]:
    """A page token is the last name of the previous page."""
    names = list(models)
    start = 0 if not asked.page_token else _place(names, "pageToken", asked.page_token) + 1
    end = start + (asked.page_size or len(names))
    page = names[start:end]
    more = {"nextPageToken": page[-1]} if page and end < len(names) else {}
    return {"models": [google_model(name, models[name]) for name in page], **more}


def google_model(name: str, candidate: Candidate | None) -> dict[str, object]:
    """One row. Names that rules route have no token limit."""
    limits = {} if candidate is None else {"inputTokenLimit": candidate.context_window}
    does_embed = candidate is not None and candidate.specialty == EMBEDDINGS
    does_write = candidate is None or candidate.specialty is None
    methods = EMBEDDING if does_embed else WRITING if does_write else []
    return {"name": f"{PREFIX}{name}", "displayName": name, "supportedGenerationMethods": methods, **limits}


def _place(names: Sequence[str], parameter: str, name: str) -> int:
    if name not in names:
        raise InvalidRequest(f"{parameter}: {name[:64]!r} is not one of these models.", param=parameter)
    return names.index(name)
