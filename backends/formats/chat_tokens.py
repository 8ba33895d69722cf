"""Requests and answers of `/tokenize`, where vLLM and our engine count a chat's tokens. Pure."""

from typing import Final

import msgspec

from backends.errors import UpstreamUnavailable
from backends.formats.json_objects import decode_object, objects_of
from backends.formats.json_splice import MEMBERS
from backends.formats.usage_wire import MalformedUsage, token_count
from backends.protocol import Chunk
from backends.usage import Usage

PATH: Final = "tokenize"
"""Relative to the server's root, like its health check."""
_MAKES_THE_PROMPT: Final = (
    "model",
    "messages",
    "tools",
    "tool_choice",
    "chat_template_kwargs",
    "add_generation_prompt",
    "continue_final_message",
    "documents",
    "reasoning_effort",
)


class _Counted(msgspec.Struct):
    """Only the count: the tokens themselves may be a hundred thousand."""

    count: int


_COUNTED: Final = msgspec.json.Decoder(_Counted)


def tokenize_body(chat: bytes) -> bytes:
    """The fields of a chat's body that affect its prompt."""
    members = MEMBERS.decode(chat)
    return msgspec.json.encode({name: members[name] for name in _MAKES_THE_PROMPT if name in members})


def is_text_alone(chat: bytes) -> bool:
    """Whether every part of every message is text."""
    messages = objects_of((decode_object(chat) or {}).get("messages"))
    parts = [part for message in messages for part in objects_of(message.get("content"))]
    return all(part.get("type") == "text" for part in parts)


def read_token_count(body: bytes, *, backend: str) -> Chunk:
    """Raises UpstreamUnavailable if the body has no count."""
    try:
        count = token_count(_COUNTED.decode(body).count, "count")
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError, MalformedUsage) as error:
        raise UpstreamUnavailable(f"{backend} answered without a count") from error
    return Chunk(body, usage=Usage(input_tokens=count), is_done=True)
