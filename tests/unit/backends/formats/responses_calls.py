"""Builders of chats that are sent as responses."""

import json
from typing import Any

from backends.formats.responses_request import build_response_body
from backends.protocol import Call

Json = dict[str, Any]
HELLO: list[Json] = [{"role": "user", "content": "hi"}]
HI: Json = {"type": "message", "role": "user", "content": "hi"}
SCHEMA: Json = {"type": "object", "properties": {"n": {"type": "integer"}}}
FUNCTION: Json = {"name": "f", "description": "Finds.", "parameters": SCHEMA}


PRO = "gpt-5.4-pro"


def make_call(
    model: str = "m", *, upstream: str = PRO, stream: bool = False, translated: bool = False, **body: Any
) -> Call:
    raw = json.dumps({"model": model, "messages": HELLO, **body}).encode()
    return Call("chat.completions", upstream, raw, stream, "r-1", is_translated=translated)


def built(call: Call, **how: Any) -> Json:
    return json.loads(build_response_body(call, backend="openai", models_think=True, **how))
