"""The items of a conversation: stored as received, to be sent to models unchanged, and shown as OpenAI's API does, each
with an id. Pure."""

import re
import secrets
from collections.abc import Collection, Iterable, Sequence
from typing import Final, NamedTuple, cast

import msgspec

from backends.formats.json_objects import NOT_JSON, Fields, decode_object, text_of
from backends.formats.json_splice import VALUES
from gateway.errors import InvalidRequest

_ID: Final = re.compile(r"[A-Za-z0-9_.:-]{1,256}")
_PREFIXES: Final = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "function_call_output": "fco",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "cto",
}
_ENDED: Final = ("message", "function_call", "function_call_output")
"""Items with a `status`."""
_SAID: Final[Fields] = {"type": "output_text", "annotations": [], "logprobs": []}
_OUTPUTS: Final = ("function_call_output", "custom_tool_call_output")
_OPAQUE: Final = ("item_reference", "compaction")
"""Items that stand for others, which only a provider can read."""
MOST_LEVELS: Final = 100
"""The deepest nesting allowed: stored items must be parsed again later, and shown."""


class _WithOutput(msgspec.Struct):
    output: msgspec.Raw


_OUTPUT: Final = msgspec.json.Decoder(_WithOutput)


class _Paired(msgspec.Struct):
    type: object = None
    call_id: object = None


_PAIRED: Final = msgspec.json.Decoder(list[_Paired])


class Item(NamedTuple):
    """`given` is the item's JSON as received, with or without an `id`."""

    id: str
    given: bytes


def split_items(items: bytes) -> list[bytes]:
    """The values of a JSON array, each with its bytes unchanged."""
    return [bytes(one) for one in VALUES.decode(items)]


def output_of(response: bytes) -> bytes:
    """The model's output items, as a JSON array. Raises msgspec's errors if the response has none."""
    return bytes(_OUTPUT.decode(response).output)


def join_items(items: Sequence[bytes]) -> bytes:
    return b"[" + b",".join(items) + b"]"


def parse_items(items: bytes, known: Collection[str], *, param: str = "items") -> list[Item]:
    """The items of a JSON array, each with an id not in `known`: its own, or a new one. Raises InvalidRequest."""
    found: list[Item] = []
    ids = set(known)
    for place, given in enumerate(split_items(items)):
        fields = decode_object(given)
        if fields is None:
            raise _invalid(f"{param}[{place}]", "must be an object")
        if given.count(b"[") + given.count(b"{") > MOST_LEVELS and _is_deep(fields):
            raise _invalid(f"{param}[{place}]", f"has more than {MOST_LEVELS} levels of lists and objects")
        kind = _kind_of(fields, f"{param}[{place}]")
        own = text_of(fields, "id")
        is_new = own is not None and _ID.fullmatch(own) is not None and own not in ids
        named = own if own is not None and is_new else f"{_PREFIXES.get(kind, 'item')}_{secrets.token_hex(24)}"
        ids.add(named)
        found.append(Item(named, given))
    return found


def placed_items(items: bytes) -> list[Item]:
    """The objects of a JSON array, each with its own id or, so that every listing has the same, that of its place."""
    found: dict[str, Item] = {}
    for place, given in enumerate(split_items(items)):
        own = text_of(decode_object(given) or {}, "id")
        named = f"item_{place}" if own is None or own in found else own
        found[named] = Item(named, given)
    return list(found.values())


def _is_deep(fields: Fields) -> bool:
    level: list[object] = [fields]
    for _ in range(MOST_LEVELS):
        level = [inner for outer in level for inner in _within(outer) if isinstance(inner, dict | list)]
    return bool(level)


def _within(outer: object) -> Iterable[object]:
    return cast(Fields, outer).values() if isinstance(outer, dict) else cast(list[object], outer)


def _kind_of(fields: Fields, where: str) -> str:
    kind = fields.get("type", "message" if "role" in fields else None)
    if not isinstance(kind, str):
        raise _invalid(f"{where}.type", "must be a string")
    if kind == "item_reference":
        raise _invalid(where, "no item with that id is kept here")
    if kind == "message":
        if not isinstance(fields.get("role"), str):
            raise _invalid(f"{where}.role", "must be a string")
        if not isinstance(fields.get("content"), str | list):
            raise _invalid(f"{where}.content", "must be a string or a list of parts")
    return kind


def shown(item: Item) -> Fields:
    """The item as clients expect it: a message has a type, a status and its content in parts."""
    fields = decode_object(item.given) or {}
    kind = fields.get("type", "message")
    whole: Fields = {"type": kind, **fields, "id": item.id}
    if kind in _ENDED and not isinstance(fields.get("status"), str):
        whole["status"] = "completed"
    if kind == "message":
        whole["content"] = _parts(fields.get("content"), fields.get("role"))
    return whole


def _parts(content: object, role: object) -> list[object]:
    if isinstance(content, str):
        said = _SAID if role == "assistant" else {"type": "input_text"}
        return [{**said, "text": content}]
    return cast(list[object], content)


def _invalid(param: str, why: str) -> InvalidRequest:
    return InvalidRequest(f"{param}: {why}.", param=param)


def require_calls(before: Sequence[bytes], items: bytes) -> None:
    """Rejects the result of a call that is in neither: `before` are JSON arrays with all that was said earlier. A
    conversation that its client sends whole is not checked: clients drop its beginning. Raises InvalidRequest."""
    if b"call_output" not in items:
        return
    try:
        given = _PAIRED.decode(items)
        known = [item for part in before for item in _PAIRED.decode(part)] + given
    except NOT_JSON:  # the next reader reports what is wrong
        return
    if any(item.type in _OPAQUE for item in known):
        return
    calls = {item.call_id for item in known if item.type not in _OUTPUTS and isinstance(item.call_id, str)}
    for item in given:
        if item.type in _OUTPUTS and isinstance(item.call_id, str) and item.call_id not in calls:
            raise InvalidRequest(
                f"No tool call found for {str(item.type).replace('_', ' ')} with call_id {item.call_id}. Answer a call "
                "of this conversation by its `call_id`, which is not its `id`.",
                param="input",
            )


def items_of(given: bytes) -> bytes | None:
    """A request's `input` as a JSON array, empty for null; None if it is neither a string nor a list."""
    if given == b"null":
        return b"[]"
    if given.startswith(b'"'):
        return b'[{"type":"message","role":"user","content":' + given + b"}]"
    return given if given.startswith(b"[") else None


def joined(lists: Sequence[bytes]) -> bytes:
    """Concatenates JSON arrays."""
    inner = [one[1:-1].strip() for one in lists]
    return b"[" + b",".join(one for one in inner if one) + b"]"
