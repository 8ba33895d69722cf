"""Requests and answers of reranking, in the form of Cohere's API, which most servers share. No IO, no clock.

Bytes in that form already pass through unchanged, except for the model's name in the request. Covers the published APIs
of Cohere (v2), Voyage, Jina, Together and Fireworks, and of vLLM, SGLang, Infinity and Text Embeddings Inference.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, cast

import msgspec

from backends.errors import UnreadableAnswer, Untranslatable, UpstreamRejected
from backends.formats.chat_fields import invalid, untranslatable
from backends.formats.json_objects import NOT_JSON, Fields, part_of
from backends.formats.json_splice import splice
from backends.formats.openai_request import members_of
from backends.formats.usage_wire import PICO_PER_USD, believable, dollars, token_count
from backends.http.errors import error_from_event, no_answer
from backends.protocol import Call, Chunk
from backends.usage import Units, Usage


@dataclass(frozen=True, slots=True)
class RerankDialect:
    """How a server's API differs. `path` is from its root; `renames` and `lacks` are about the request's fields;
    `most_documents` is its limit; `is_tei`: it takes `texts` and hardly anything else."""

    path: str = ""
    renames: Mapping[str, str] = field(default_factory=dict[str, str])
    lacks: frozenset[str] = frozenset()
    most_documents: int | None = None
    is_tei: bool = False


PLAIN_RERANK: Final = RerankDialect()
RERANK_DIALECTS: Final[Mapping[str, RerankDialect]] = {
    "cohere": RerankDialect("/v2/rerank", lacks=frozenset({"return_documents"}), most_documents=10_000),
    "fireworks": RerankDialect(lacks=frozenset({"max_tokens_per_doc"})),
    "jina": RerankDialect(lacks=frozenset({"max_tokens_per_doc"})),
    "text-embeddings-inference": RerankDialect("/rerank", is_tei=True),
    "together": RerankDialect(lacks=frozenset({"max_tokens_per_doc"})),
    "voyage": RerankDialect(
        renames={"top_n": "top_k"}, lacks=frozenset({"max_tokens_per_doc", "return_documents"}), most_documents=1_000
    ),
}
"""By provider. Documents missing from an answer are filled in here, so no provider has to return them."""
_TOO_MANY: Final = re.compile(
    rb"batch size|(?:too many|number of|maximum of|more than|at most)[^\"]{0,40} (?:documents|texts|inputs)",
    re.IGNORECASE,
)
"""How servers reject too many documents, which another server may accept."""
_REFUSALS: Final = (400, 422)


class _Text(msgspec.Struct):
    text: str


class _Request(msgspec.Struct):
    query: str
    documents: list[str | _Text]
    top_n: int | None = None
    return_documents: bool | None = None


class _Originals(msgspec.Struct):
    documents: list[msgspec.Raw]


class _Result(msgspec.Struct):
    index: int
    relevance_score: float | None = None
    score: float | None = None
    document: object = None


class _Answer(msgspec.Struct):
    results: list[_Result] | None = None
    data: list[_Result] | None = None
    id: object = None
    model: object = None
    usage: object = None
    meta: object = None
    provider: object = None
    error: object = None


_REQUEST: Final = msgspec.json.Decoder(_Request)
_ORIGINALS: Final = msgspec.json.Decoder(_Originals)
_ANSWER: Final = msgspec.json.Decoder(_Answer | list[_Result])


class RerankAsked(msgspec.Struct, frozen=True):
    """A request as sent to its server, and what its caller asked to get back."""

    body: bytes
    count: int
    top_n: int | None = None
    documents: Sequence[bytes] | None = None
    """The JSON of each, if the caller wants them back."""


def rerank_dialect_of(provider: str) -> RerankDialect:
    return RERANK_DIALECTS.get(provider, PLAIN_RERANK)


def ask(call: Call, dialect: RerankDialect, *, backend: str) -> RerankAsked:
    """Raises UpstreamRejected for an invalid request, and Untranslatable for one that this server cannot take."""
    members = members_of(call.body)
    try:
        asked = _REQUEST.decode(call.body)
    except msgspec.ValidationError as error:
        raise invalid("documents", str(error)) from error
    count, most = len(asked.documents), dialect.most_documents
    if most is not None and count > most:
        raise untranslatable("documents", f"{backend} ranks at most {most:,} at once, and these are {count:,}")
    texts = [one if isinstance(one, str) else one.text for one in asked.documents]
    wanted = _originals(call.body) if asked.return_documents else None
    if dialect.is_tei:
        body = msgspec.json.encode({"query": asked.query, "texts": texts, "truncate": True})
        return RerankAsked(body, count, asked.top_n, wanted)
    edits: dict[str, bytes | None] = {"model": msgspec.json.encode(call.upstream_model)}
    if not all(isinstance(one, str) for one in asked.documents):
        edits["documents"] = msgspec.json.encode(texts)
    for name in members:
        if name in dialect.lacks:
            edits[name] = None
        elif (other := dialect.renames.get(name)) is not None:
            edits[name], edits[other] = None, members[name].of(call.body)
    return RerankAsked(splice(call.body, edits, members), count, asked.top_n, wanted)


def _originals(body: bytes) -> Sequence[bytes]:
    documents = (bytes(one) for one in _ORIGINALS.decode(body).documents)
    return [one if one.startswith(b"{") else b'{"text":%b}' % one for one in documents]


def read_answer(body: bytes, asked: RerankAsked, call: Call, *, backend: str) -> Chunk:
    """The single chunk of an answer: the same bytes, or their content in Cohere's form, the most relevant first. Raises
    UnreadableAnswer, or the BackendError that an error in the answer stands for."""
    try:
        said = _ANSWER.decode(body)
    except NOT_JSON as error:
        raise no_answer(f"{backend} answered with something other than a ranking", body) from error
    answer = _Answer(data=said) if isinstance(said, list) else said
    if answer.error is not None:
        raise error_from_event(answer.error, backend=backend, is_started=False)
    usage, is_malformed = believable(_usage, answer)
    results = answer.data if answer.results is None else answer.results
    if results is None or not _is_ranking(results, asked.count):
        raise UnreadableAnswer(f"{backend} answered without a ranking of what was sent", usage=usage)
    if answer.results is None or not _is_as_asked(results, asked):
        body = _written(answer, results, asked, call)
    return Chunk(body, has_output=True, usage=usage, is_done=True, is_usage_malformed=is_malformed)


def _is_ranking(results: Sequence[_Result], count: int) -> bool:
    places = {one.index for one in results}
    has_scores = all(one.relevance_score is not None or one.score is not None for one in results)
    return has_scores and len(places) == len(results) and all(0 <= place < count for place in places)


def _is_as_asked(results: Sequence[_Result], asked: RerankAsked) -> bool:
    if asked.top_n is not None and len(results) > asked.top_n:
        return False
    allowed = (dict,) if asked.documents is not None else (dict, type(None))
    return all(one.relevance_score is not None and isinstance(one.document, allowed) for one in results)


def _written(answer: _Answer, results: Sequence[_Result], asked: RerankAsked, call: Call) -> bytes:
    ranked = sorted(results, key=_score, reverse=True)
    shown = [
        {"index": one.index, "relevance_score": _score(one)}
        | ({} if asked.documents is None else {"document": msgspec.Raw(asked.documents[one.index])})
        for one in ranked[: asked.top_n]
    ]
    told = {name: value for name in ("model", "usage", "meta") if (value := getattr(answer, name)) is not None}
    return msgspec.json.encode({"id": answer.id or call.request_id, "results": shown, **told})


def _score(result: _Result) -> float:
    return (result.score or 0.0) if result.relevance_score is None else result.relevance_score


def _usage(answer: _Answer) -> Usage | None:
    """Search units as Cohere bills, tokens as the others do, what is charged as OpenRouter says, whose answers name the
    provider; None if nothing is given. Raises MalformedUsage."""
    usage = cast(Fields, answer.usage) if isinstance(answer.usage, dict) else {}
    meta = cast(Fields, answer.meta) if isinstance(answer.meta, dict) else {}
    billed, tokens = part_of(meta, "billed_units"), part_of(meta, "tokens")
    units = _first_count((billed, "search_units"), (usage, "search_units"))
    charged_pico_usd = dollars(usage, "cost", PICO_PER_USD) if isinstance(answer.provider, str) else None
    read = _first_count((usage, "prompt_tokens"), (usage, "input_tokens"), (tokens, "input_tokens"))
    written = _first_count((usage, "completion_tokens"), (usage, "output_tokens"), (tokens, "output_tokens"))
    if not read:
        read, written = _first_count((usage, "total_tokens"), (billed, "total_tokens")), 0
    if not (units or read or charged_pico_usd):
        return None
    return Usage(
        input_tokens=read,
        output_tokens=written,
        units=Units(search_units=units),
        charged_pico_usd=charged_pico_usd or None,  # 0 with an own key, whose provider charges
    )


def _first_count(*places: tuple[Mapping[str, object], str]) -> int:
    """The first that is given and not 0. Raises MalformedUsage."""
    return next((count for fields, name in places if (count := token_count(fields.get(name), name))), 0)


def where_another_may_do(refusal: UpstreamRejected) -> Untranslatable | None:
    """A rejection for too many documents as Untranslatable, so that another server is tried; None for any other."""
    if isinstance(refusal, Untranslatable) or refusal.status not in _REFUSALS or not _TOO_MANY.search(refusal.body):
        return None
    message = f"{refusal.message}: it does not rank so many documents at once"
    return Untranslatable(message, status=refusal.status, body=refusal.body)
