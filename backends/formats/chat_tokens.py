"""How vLLM and our engine are asked at `/tokenize` for a chat's tokens, and what they answer. Pure."""

from typing import Final

import msgspec

from backends.errors import UpstreamUnavailable
from backends.formats.json_objects import decode_object, objects_of
from backends.formats.usage_wire import MalformedUsage, token_count
from backends.protocol import Chunk
from backends.usage import Usage

PATH: Final = "tokenize"
"""At the server's root, as its health is."""
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
    """Without the tokens themselves, of which there may be a hundred thousand."""

    count: int


_MEMBERS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_COUNTED: Final = msgspec.json.Decoder(_Counted)


def tokenize_body(chat: bytes) -> bytes:
    """What of a chat's body makes its prompt."""
    members = _MEMBERS.decode(chat)
    return msgspec.json.encode({name: members[name] for name in _MAKES_THE_PROMPT if name in members})


def is_text_alone(chat: bytes) -> bool:
    """Whether no message has a part that is something else."""
    messages = objects_of((decode_object(chat) or {}).get("messages"))
    parts = [part for message in messages for part in objects_of(message.get("content"))]
    return all(part.get("type") == "text" for part in parts)


def read_token_count(body: bytes, *, backend: str) -> Chunk:
    """Raises UpstreamUnavailable when no count is in it."""
    try:
        count = token_count(_COUNTED.decode(body).count, "count")
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError, MalformedUsage) as error:
        raise UpstreamUnavailable(f"{backend} answered without a count") from error
    return Chunk(body, usage=Usage(input_tokens=count), is_done=True)
