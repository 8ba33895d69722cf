"""Chat bodies, and their translation to Anthropic's format."""

import json
from typing import cast

from backends.formats.anthropic_request import build_messages_body
from backends.formats.chat_view import parse_chat
from backends.protocol import Call

Json = dict[str, object]
OLDER = "claude-sonnet-4-6"
HI = [{"role": "user", "content": "hi"}]
HI_SAID = [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


def translate(body: Json, *, stream: bool = False, model: str = OLDER) -> Json:
    raw = json.dumps({"messages": HI} | body).encode()
    call = Call("chat.completions", model, raw, stream, "r-1")
    return cast(Json, json.loads(build_messages_body(parse_chat(raw), call)))


TOOL: Json = {"type": "function", "function": {"name": "f", "description": "d", "parameters": SCHEMA, "strict": True}}
CALL: Json = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}


def ask(*parts: Json) -> Json:
    return {"messages": [{"role": "user", "content": list(parts)}]}
