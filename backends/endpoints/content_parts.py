"""Translates the parts of Gemini's contents to messages of an OpenAI chat. Pure."""

import base64
import binascii
import mimetypes
from collections import defaultdict, deque
from collections.abc import Iterator
from typing import Final

import msgspec

from backends.endpoints.function_names import name_for_chats
from backends.formats.chat_fields import invalid, untranslatable
from backends.formats.json_objects import Fields, part_of, text_of
from backends.formats.past_thinking import DETAILS, THOUGHT, detail_of
from backends.formats.proto_json import member_of, messages_of
from backends.formats.thought_signatures import details_in, is_sealed

_SOUNDS: Final = {"audio/mpeg": "mp3", "audio/x-wav": "wav", "audio/wave": "wav"}
"""Audio formats of a chat, for MIME types whose name differs."""
_WEB: Final = ("https://", "http://")
_OF_GOOGLE: Final = ("https://generativelanguage.googleapis.com/", "https://www.youtube.com/", "https://youtu.be/")
"""Addresses that only Google's models can open."""


class Calls:
    """Function calls without a result yet. Their ids are optional in Gemini, required in chats.

    Answered calls are dropped lazily, at the head of a queue: searching all open calls for each result could take
    minutes.
    """

    def __init__(self) -> None:
        self._waiting: dict[int, str] = {}
        self._of_id, self._of_name = defaultdict[str, deque[int]](deque), defaultdict[str, deque[int]](deque)
        self._all = deque[int]()
        self._count = 0

    def called(self, call: Fields) -> str:
        """The id of a call, its own or a new one."""
        self._count += 1
        call_id = text_of(call, "id") or f"call_{self._count}"
        self._waiting[self._count] = call_id
        for line in (self._of_id[call_id], self._of_name[text_of(call, "name") or ""], self._all):
            line.append(self._count)
        return call_id

    def answered(self, response: Fields, where: str) -> str:
        """The id of the call that a result answers: by id, else the first open one of that name, else the first."""
        call_id, name = text_of(response, "id"), text_of(response, "name")
        lines = (
            self._of_id[call_id] if call_id is not None else None,
            self._of_name[name] if name is not None else None,
            self._all,
        )
        found = next((first for line in lines if line and (first := self._first(line)) is not None), None)
        if found is None:
            raise invalid(f"{where}.functionResponse", "does not answer any earlier function call")
        return self._waiting.pop(found)

    def _first(self, line: deque[int]) -> int | None:
        while line and line[0] not in self._waiting:
            line.popleft()
        return line[0] if line else None


def model_message(parts: list[Fields], calls: Calls, where: str, *, signs_calls: bool) -> Iterator[Fields]:
    """One message with what the model said; none if that was neither text nor calls. Raises UpstreamRejected."""
    text: list[str] = []
    thought: list[str] = []
    called: list[Fields] = []
    details: list[Fields] = []
    for part in parts:
        signature = text_of(part, "thoughtSignature")
        details += [detail_of(carried, place) for place, carried in details_in(signature or "")]
        if (said := text_of(part, "text")) is not None:
            (thought if part.get("thought") is True else text).append(said)
        elif call := member_of(part, "functionCall"):
            called.append(_call(call, calls, where))
            if signs_calls and signature and not is_sealed(signature):
                called[-1]["extra_content"] = {"google": {"thought_signature": signature}}
        elif what := part.keys() - {"thought", "thoughtSignature", "partMetadata"}:
            raise untranslatable(f"{where}.parts", f"{min(what)} from a model cannot be sent to this one")
    thinking = "\n\n".join(filter(None, thought))
    message: Fields = {"role": "assistant", "content": "".join(text) or None, THOUGHT: thinking}
    message |= {DETAILS: details} if details else {}
    if called:
        yield message | {"tool_calls": called}
    elif message["content"]:
        yield message


def user_messages(parts: list[Fields], calls: Calls, where: str) -> Iterator[Fields]:
    """A message for each function result, as chats require, then one with all other parts. Raises UpstreamRejected."""
    said: list[Fields] = []
    for part in parts:
        if response := member_of(part, "functionResponse"):
            content = msgspec.json.encode(part_of(response, "response")).decode()
            yield {"role": "tool", "tool_call_id": calls.answered(response, where), "content": content}
            said += [_part(shown, where) for shown in messages_of(response, "parts")]
        elif part.get("text") != "":
            said.append(_part(part, where))
    if len(said) == 1 and said[0]["type"] == "text":
        yield {"role": "user", "content": said[0]["text"]}
    elif said:
        yield {"role": "user", "content": said}


def _call(call: Fields, calls: Calls, where: str) -> Fields:
    name = text_of(call, "name")
    if not name:
        raise invalid(f"{where}.functionCall.name", "must be a non-empty string")
    arguments = msgspec.json.encode(part_of(call, "args")).decode()
    return {
        "id": calls.called(call),
        "type": "function",
        "function": {"name": name_for_chats(name), "arguments": arguments},
    }


def _part(part: Fields, where: str) -> Fields:
    if (text := text_of(part, "text")) is not None:
        return {"type": "text", "text": text}
    if inline := member_of(part, "inlineData"):
        return _inline(inline, where)
    if file := member_of(part, "fileData"):
        return _by_address(file, where)
    raise untranslatable(f"{where}.parts", f"{min(part, default='a part')} cannot be sent to this model")


def _inline(inline: Fields, where: str) -> Fields:
    kind, content = (text_of(inline, "mimeType") or "").lower(), text_of(inline, "data") or ""
    kind, _, _ = kind.partition(";")
    data = content.replace("-", "+").replace("_", "/")
    if kind.startswith("text/") or kind == "application/json":
        return {"type": "text", "text": _text(data, where)}
    if kind.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": f"data:{kind};base64,{data}"}}
    if kind.startswith("audio/"):
        form = _SOUNDS.get(kind, kind.removeprefix("audio/"))
        return {"type": "input_audio", "input_audio": {"data": data, "format": form}}
    if kind == "application/pdf":
        name = text_of(inline, "displayName") or "document.pdf"
        return {"type": "file", "file": {"filename": name, "file_data": f"data:{kind};base64,{data}"}}
    raise untranslatable(f"{where}.inlineData", f"{kind or 'data without a type'} cannot be sent to this model")


def _text(data: str, where: str) -> str:
    try:
        return base64.b64decode(data, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError) as error:
        raise invalid(f"{where}.inlineData.data", "must be base64 of UTF-8 text") from error


def _by_address(file: Fields, where: str) -> Fields:
    address = text_of(file, "fileUri") or ""
    kind = text_of(file, "mimeType") or mimetypes.guess_type(address.partition("?")[0])[0] or ""
    if not address.startswith(_WEB) or address.startswith(_OF_GOOGLE):
        why = "files stored at Google are available only to its models; send the content as inlineData"
        raise untranslatable(f"{where}.fileData", why)
    if not kind.startswith("image/"):
        raise untranslatable(f"{where}.fileData", "only images can be sent to this model by their URL")
    return {"type": "image_url", "image_url": {"url": address}}
