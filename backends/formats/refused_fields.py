"""Fields of a chat that OpenAI's reasoning models, newer Claude, Kimi and NVIDIA's servers refuse, each by its name,
where a deployment's (Azure's, Databricks's) does not say which model it is. Pure."""

import re
from collections.abc import Collection
from typing import Final

from backends.formats.chat_fields import EFFORTS
from backends.formats.efforts import EFFORT, effort_of
from backends.formats.json_objects import decode_object, text_of, without_escapes
from backends.formats.json_splice import NotAnObject, find_members, splice
from backends.formats.sampling import OPENAI_SAMPLING

_REFUSED: Final = re.compile(
    rb"Unsupported (?:parameter|value): '(\w{1,64})' (?:is not supported|does not support)[^\"]{0,80} with this model"
    rb"|invalid (\w{1,64}): only [\d.]{1,9} is allowed for this model"
    rb"|`(\w{1,64})` is deprecated for this model|[Mm]odel \S{1,100} does not support the (\w{1,64}) parameter"
    rb"|Unsupported parameter\(s\): `?(\w{1,64})|extra_forbidden', 'loc': \('body', '(\w{1,64})'\)"
)
_LIMIT, _NEWER_LIMIT = "max_tokens", "max_completion_tokens"
_NAMES: Final = (
    OPENAI_SAMPLING
    | {"logit_bias", "prediction", "seed", "verbosity", _LIMIT}
    | {"prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "safety_identifier", "store"}
)
"""What only tunes the answer or its cost, and the limit, which has another name there."""
_REASONING: Final = b'"reasoning"'

OfEffort = tuple[str, str | None]


def of_effort(model: str, body: bytes) -> OfEffort:
    """The key of what a model refuses: GPT-5.1 to 5.4 take a temperature only while they do not reason."""
    try:
        return model, effort_of(body) if EFFORT in body else None
    except NotAnObject:  # for whoever reads it next to refuse
        return model, None


def of_response_effort(model: str, body: bytes) -> OfEffort:
    """The same key for a response."""
    try:
        member = find_members(body).get("reasoning") if _REASONING in body else None
    except NotAnObject:  # for whoever reads it next to refuse
        return model, None
    effort = text_of(decode_object(member.of(body)) or {}, "effort") if member else None
    return model, effort if effort in EFFORTS else None


def refused_field(refusal: bytes) -> str | None:
    """The field that an error refuses, if a chat can do without it."""
    found = _REFUSED.search(refusal)
    name = found[found.lastindex or 0].decode() if found else None
    return name if name in _NAMES else None


def may_be_repeated(body: bytes) -> bool:
    """Whether a chat has such an error's words: a server that repeats them says nothing about other chats. Of whichever
    field: a server may repeat the second of two."""
    return _REFUSED.search(without_escapes(body)) is not None


def without_refused(body: bytes, names: Collection[str]) -> bytes:
    """A chat without these fields, and with its limit under the newer name; the same bytes if it has none of them."""
    try:
        members = find_members(body) if names else {}
    except NotAnObject:  # for whoever reads it next to refuse
        return body
    edits: dict[str, bytes | None] = dict.fromkeys(members.keys() & set(names))
    if not edits:
        return body
    newer = members.get(_NEWER_LIMIT)
    if _LIMIT in edits and (newer is None or newer.of(body) == b"null"):
        edits[_NEWER_LIMIT] = members[_LIMIT].of(body)
    return splice(body, edits, members)
