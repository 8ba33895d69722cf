"""View of a request to rank documents by a query, for the decision.

The model reads every document together with the query. Providers that bill searches count one per hundred documents,
and a long document as several: see https://cohere.com/pricing.
"""

import math
from typing import Final

import msgspec

from backends.usage import Units
from gateway.errors import InvalidRequest
from gateway.request.field_checks import checked_limit
from gateway.request.view import RequestView, estimate_tokens
from gateway.routing.rules import AUTO, RERANK

DOCUMENTS_PER_SEARCH: Final = 100
TOKENS_PER_PART: Final = 500
"""The most tokens that count as one document, including the query."""
LEAST_TOKENS_PER_PART: Final = 250
"""Assumed to remain for the document next to a long query, for the bound."""
LONGEST_DOCUMENT: Final = 4_096
"""In tokens; the rest is cut off, unless `max_tokens_per_doc` says otherwise."""
MOST_DOCUMENTS: Final = 100_000
"""Ten times what any provider takes. Counting a million occupied a worker for a second."""
MARKS_PER_DOCUMENT: Final = 8
"""The most separator tokens between and around the query and a document."""


class Document(msgspec.Struct):
    text: str


class RerankBody(msgspec.Struct):
    query: str
    documents: list[str | Document]
    model: str | None = None
    top_n: int | None = None
    return_documents: bool | None = None
    max_tokens_per_doc: int | None = None
    rank_fields: list[str] | None = None


RERANK_BODY: Final = msgspec.json.Decoder(RerankBody)


def view_rerank(body: bytes) -> RequestView:
    """Raises InvalidRequest naming the invalid field, and msgspec's errors for unreadable bodies."""
    asked = RERANK_BODY.decode(body)
    if not asked.documents:
        raise InvalidRequest("documents: needs at least one document to rank.", param="documents")
    if len(asked.documents) > MOST_DOCUMENTS:
        raise InvalidRequest(f"documents: takes at most {MOST_DOCUMENTS:,}.", param="documents")
    if any(name != "text" for name in asked.rank_fields or ()):
        raise InvalidRequest(
            "rank_fields: only the `text` of a document is ranked; put everything that counts into it.",
            param="rank_fields",
        )
    checked_limit("top_n", asked.top_n)
    longest = checked_limit("max_tokens_per_doc", asked.max_tokens_per_doc)
    return _view(asked, longest or LONGEST_DOCUMENT)


def _view(asked: RerankBody, longest: int) -> RequestView:
    texts = [one if isinstance(one, str) else one.text for one in asked.documents]
    tokens, most_tokens = [estimate_tokens([text]) for text in texts], [_size(text) for text in texts]
    query, most_query = estimate_tokens([asked.query]), _size(asked.query)
    beside = max(LEAST_TOKENS_PER_PART, TOKENS_PER_PART - most_query)
    parts = sum(max(1, math.ceil((query + min(count, longest)) / TOKENS_PER_PART)) for count in tokens)
    most_parts = sum(max(1, math.ceil(min(count, longest) / beside)) for count in most_tokens)
    return RequestView(
        operation=RERANK,
        model=AUTO if asked.model is None else asked.model,
        input_tokens=query * len(texts) + sum(tokens),
        most_input_tokens=(most_query + MARKS_PER_DOCUMENT) * len(texts) + sum(most_tokens),
        most_output_tokens=0,
        units=Units(search_units=math.ceil(parts / DOCUMENTS_PER_SEARCH)),
        most_units=Units(search_units=math.ceil(max(parts, most_parts) / DOCUMENTS_PER_SEARCH)),
    )


def _size(text: str) -> int:
    """In bytes, an upper bound on tokens: no token is shorter than one byte."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
