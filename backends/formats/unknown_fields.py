"""Requests in Anthropic's format for servers that do not know its newest fields and beta headers, which Claude Code
sends with every request. What is left out only tunes the answer or its cost. Pure."""

import re
from collections.abc import Mapping, Set
from typing import Final, cast

import msgspec

from backends.formats.json_objects import Fields, decode_object, without_escapes

BETA: Final = "anthropic-beta"
_UNKNOWN: Final = re.compile(rb"([a-z_][\w.]{0,200}): Extra inputs are not permitted")
_BETA_REFUSED: Final = re.compile(rb"anthropic-beta`? header|invalid beta flag", re.IGNORECASE)
_TUNING: Final = frozenset(
    {"allowed_callers", "context_management", "defer_loading", "diagnostics", "eager_input_streaming"}
    | {"input_examples", "safeguards", "scope", "ttl"}
)
"""Of a request, of its tools and of their and its blocks' `cache_control`. Without an answer to `safeguards`, Claude
Code's auto mode makes its checks by itself."""


def without_unknown_fields(body: bytes, refusal: bytes) -> bytes:
    """The request without those fields that an error says are unknown; the same bytes if it names none of them."""
    return without_fields(body, unknown_fields(refusal))


def unknown_fields(refusal: bytes) -> frozenset[str]:
    """Names of the fields that an error says are unknown and that may be left out."""
    return _TUNING.intersection(path.decode().rpartition(".")[2] for path in _UNKNOWN.findall(refusal))


def says_unknown(body: bytes) -> bool:
    """Whether a request has the words of such an error: one that repeats them proves nothing."""
    said = without_escapes(body)
    return bool(_UNKNOWN.search(said) or _BETA_REFUSED.search(said))


def without_fields(body: bytes, names: Set[str]) -> bytes:
    """The same bytes if it has none of them."""
    fields = decode_object(body) if names else None
    if fields is None:
        return body
    kept = _without(fields, names)
    for name in ("tools", "system", "messages"):
        if isinstance(fields.get(name), list):
            kept[name] = [_plain(one, names) for one in cast(list[object], fields[name])]
    return body if kept == fields else msgspec.json.encode(kept)


def _plain(block: object, names: Set[str]) -> object:
    """A tool, a message or a block, with the blocks inside it; not what is in its schema or input."""
    if not isinstance(block, dict):
        return block
    kept = _without(cast(Fields, block), names)
    if isinstance(mark := kept.get("cache_control"), dict):
        kept["cache_control"] = _without(cast(Fields, mark), names)
    if isinstance(inner := kept.get("content"), list):
        kept["content"] = [_plain(one, names) for one in cast(list[object], inner)]
    return kept


def _without(fields: Fields, names: Set[str]) -> Fields:
    return {name: value for name, value in fields.items() if name not in names}


def without_unknown_betas(headers: Mapping[str, str], refusal: bytes) -> Mapping[str, str]:
    """The headers without those betas that an error says are unknown, or without any if it names none; the same if it
    is about something else."""
    if BETA not in headers or not _BETA_REFUSED.search(refusal):
        return headers
    asked = [beta.strip() for beta in headers[BETA].split(",")]
    left = [beta for beta in asked if beta.encode() not in refusal]
    return with_betas(headers, None if left in ([], asked) else ",".join(left))


def with_betas(headers: Mapping[str, str], betas: str | None) -> Mapping[str, str]:
    others = {name: value for name, value in headers.items() if name != BETA}
    return others | {BETA: betas} if betas else others
