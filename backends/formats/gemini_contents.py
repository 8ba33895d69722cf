"""Passes Gemini's calls and answers through for callers who use Gemini's format, and meters them on the way. Pure."""

import re
from collections.abc import Mapping
from itertools import groupby
from typing import Final, cast

import msgspec

from backends.formats.gemini import believable_usage, finish_of, has_calls_in, not_content
from backends.formats.json_objects import NOT_JSON, Fields, decode_object, objects_of, part_of, text_of
from backends.formats.json_splice import find_members, splice
from backends.formats.past_thinking import UNKNOWN_SIGNATURE
from backends.formats.proto_json import many_of
from backends.formats.thought_signatures import SEALED, is_sealed
from backends.http.stream_reader import StreamReader
from backends.protocol import Chunk
from backends.usage import Usage

_CALL_NAMES: Final = ("functionCall", "function_call")
_CALL_MARKS: Final = (b'"functionCall"', b'"function_call"')
_SIGNATURES: Final = ("thoughtSignature", "thought_signature")
_OLDER: Final = re.compile(r"gemini-(?:1\.5|2)\b")
"""Models that bill search per prompt; later ones bill each query."""
_REQUEST: Final = ("generateContentRequest", "generate_content_request")


def native_body(body: bytes, *, counts: bool, model: str) -> bytes:
    """The caller's body as sent to the model: without its own `model`, which the URL names, and with a signature in
    each model turn that calls functions. Gemini requires that signature; other models do not write one. The same bytes
    if nothing changes. Raises NotAnObject."""
    members = find_members(body)
    edits: dict[str, bytes | None] = {"model": None} if "model" in members else {}
    for name in members.keys() & set(_REQUEST if counts else ()):
        inner = members[name].of(body)
        edits[name] = splice(inner, {"model": msgspec.json.encode(f"models/{model}")})
    if (contents := members.get("contents")) is not None:
        came = contents.of(body)
        if (signed := with_signatures(came)) != came:
            edits["contents"] = signed
    return splice(body, edits, members) if edits else body


def without_signatures(body: bytes) -> bytes:
    """The request without anybody's signatures, and with placeholders instead; the same bytes if it has none."""
    contents = (decode_object(body) or {}).get("contents")
    signed = [
        (part, name)
        for content in objects_of(many_of(contents))
        for part in objects_of(many_of(content.get("parts")))
        for name in _SIGNATURES
        if part.get(name) not in (None, UNKNOWN_SIGNATURE)
    ]
    if not signed:
        return body
    for part, name in signed:
        del part[name]
    return splice(body, {"contents": with_signatures(msgspec.json.encode(contents))}, find_members(body))


def with_signatures(contents: bytes) -> bytes:
    """Contents without our own signatures, and with a placeholder in each model turn whose calls have none. The same
    bytes if nothing changes."""
    if SEALED.encode() not in contents and not any(mark in contents for mark in _CALL_MARKS):
        return contents
    try:
        found = msgspec.json.decode(contents)
    except NOT_JSON:  # for the provider to reject
        return contents
    turns = groupby(objects_of(many_of(found)), lambda content: content.get("role") == "model")
    changed = [_sign(list(turn), is_models=is_models) for is_models, turn in turns]
    return msgspec.json.encode(found) if any(changed) else contents


def _sign(turn: list[Fields], *, is_models: bool) -> bool:
    """Signs one turn in place; whether it changed. A streamed answer comes back as several contents, one per chunk."""
    parts, has_changed = [part for content in turn for part in objects_of(many_of(content.get("parts")))], False
    for part in parts:
        for name in _SIGNATURES:
            if is_sealed(text_of(part, name) or ""):
                del part[name]
                has_changed = True
    calls = [part for part in parts if any(name in part for name in _CALL_NAMES)]
    if not is_models or not calls or any(name in one for one in calls for name in _SIGNATURES):
        return has_changed
    calls[0]["thoughtSignature"] = UNKNOWN_SIGNATURE
    return True


def read_native_content(body: bytes, *, backend: str, model: str) -> Chunk:
    """A whole answer, its bytes unchanged. Raises BackendError if it is none."""
    document = decode_object(body) or {}
    finish = finish_of(document)
    if finish is None:
        raise not_content(document, body, backend=backend)
    usage, is_malformed = _usage(document.get("usageMetadata"), _searches(document, model), _maps(document))
    characters = _characters(document)
    return Chunk(
        body,
        has_output=characters > 0,
        output_characters=characters,
        finish_reason=finish,
        usage=usage,
        is_done=True,
        is_usage_malformed=is_malformed,
    )


class NativeContentReader(StreamReader):
    """One stream; every event's payload is its data unchanged. The stream has no end marker."""

    def __init__(self, backend: str, model: str) -> None:
        super().__init__(backend)
        self._model = model
        self._usage: object = None
        self._searches = self._maps = 0
        self._has_finished = False
        self._has_calls = False

    def read(self, data: bytes) -> list[Chunk]:
        event = decode_object(data)
        if event is None:
            raise self._broken("sent an event that is not JSON")
        if event.get("error") is not None:
            raise self._failed(event["error"])
        self._usage = event.get("usageMetadata", self._usage)
        self._searches = max(self._searches, _searches(event, self._model))
        self._maps = max(self._maps, _maps(event))
        characters = _characters(event)
        self._has_calls = self._has_calls or has_calls_in(event)
        finish = finish_of(event, has_calls=self._has_calls)
        self._has_finished = self._has_finished or finish is not None
        self.is_started = self.is_started or characters > 0 or self._has_finished
        payload = b"data: " + data.replace(b"\n", b" ") + b"\n\n"
        so_far, _ = _usage(self._usage, self._searches, self._maps)
        return [Chunk(payload, characters > 0, characters, finish, usage_so_far=so_far)]

    def end(self) -> list[Chunk]:
        if not self._has_finished:
            return super().end()
        self.is_done = True
        usage, is_malformed = _usage(self._usage, self._searches, self._maps)
        return [Chunk(b"", usage=usage, is_done=True, is_usage_malformed=is_malformed)]


def _usage(wire: object, searches: int, maps: int) -> tuple[Usage | None, bool]:
    usage, is_malformed = believable_usage(wire)
    if usage is not None and (searches or maps):
        usage = msgspec.structs.replace(usage, web_searches=searches, other_tool_calls=maps)
    return usage, is_malformed


def _searches(document: Fields, model: str) -> int:
    """The Google searches billed beside the tokens: a query that is repeated is billed once, an empty one never."""
    grounded = [part_of(one, "groundingMetadata") for one in objects_of(document.get("candidates"))]
    queries = [cast(list[object], found) for one in grounded if isinstance(found := one.get("webSearchQueries"), list)]
    made = len({query for some in queries for query in some if isinstance(query, str) and query})
    return min(made, 1) if _OLDER.search(model) else made


def _maps(document: Fields) -> int:
    """1 if Google Maps was used, else 0: answers do not say how many calls are billed."""
    grounded = [part_of(one, "groundingMetadata") for one in objects_of(document.get("candidates"))]
    return int(any("maps" in chunk for one in grounded for chunk in objects_of(one.get("groundingChunks"))))


def _parts(document: Mapping[str, object]) -> list[Fields]:
    candidates = objects_of(document.get("candidates"))
    return [part for one in candidates for part in objects_of(part_of(one, "content").get("parts"))]


def _characters(document: Mapping[str, object]) -> int:
    return sum(map(_characters_of, _parts(document)))


def _characters_of(part: Fields) -> int:
    """An image or audio counts as 1: its length says nothing about its tokens."""
    if isinstance(text := part.get("text"), str):
        return len(text)
    if isinstance(part.get("functionCall"), dict):
        call = part_of(part, "functionCall")
        return len(str(call.get("name"))) + len(msgspec.json.encode(call.get("args") or {}))
    said = (part_of(part, "executableCode").get("code"), part_of(part, "codeExecutionResult").get("output"))
    return sum(len(one) for one in said if isinstance(one, str)) or int("inlineData" in part)
