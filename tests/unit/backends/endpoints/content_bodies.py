"""Gemini's requests and the chats that they become."""

import json
from typing import Any, cast

from backends.endpoints.content_format import ContentAsked, chat_from_content

Json = dict[str, Any]
HI: list[Json] = [{"role": "user", "parts": [{"text": "hi"}]}]


def asked(body: Json, *, is_stream: bool = False, **known: Any) -> ContentAsked:
    sent = json.dumps({"contents": HI} | body).encode()
    return chat_from_content(sent, model="m", is_stream=is_stream, **known)


def translate(body: Json, **known: Any) -> Json:
    return cast(Json, json.loads(asked(body, **known).body))
