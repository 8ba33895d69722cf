"""Converts error bodies of servers that follow OpenAI's format except for errors into OpenAI's shape. Pure.

Seen: older vLLM's `{"object": "error", "message": ...}`, Ollama's and TGI's `{"error": "..."}`, Mistral's
`{"message": {"detail": [...]}}`, FastAPI's `{"detail": ...}` with a text or a list of errors and their locations,
Cloudflare's and watsonx's `{"errors": [...]}`, Google's list of one error, and plain text.
"""

from typing import Final, cast

import msgspec

from backends.formats.json_objects import Fields, decode_object, part_of, text_of
from backends.formats.openai import error_body
from backends.http.errors import TOO_LONG, is_too_long, said_too_long

_NO_TEXT: Final = frozenset('<[{"')
"""How pages and JSON begin."""
_LONGEST_TEXT: Final = 4096
_WRAPPERS: Final = ("error", "errors", "message", "detail", "msg")


def in_openai_shape(body: bytes) -> bytes:
    """The body itself if it is in OpenAI's shape already, or if no message can be found in it. A prompt that is too
    long is told by OpenAI's code, which vLLM and llama.cpp do not use."""
    document = decode_object(body)
    if document is None and body.lstrip().startswith(b"["):
        return _of_google(body)
    if document is None:
        return _of_text(body)
    error, is_long = part_of(document, "error"), is_too_long(body)
    if (said := text_of(error, "message")) is not None:
        if not is_long or error.get("code") == TOO_LONG:
            return body
        told = {**error, "message": said_too_long(said), "code": TOO_LONG}
        return msgspec.json.encode(document | {"error": told})
    message = _message(document)
    if message is None:
        return body
    if is_long:
        message, code = said_too_long(message), TOO_LONG
    else:
        code = text_of(document, "code")
    return error_body(message, kind="invalid_request_error", code=code, param=text_of(document, "param"))


def _of_google(body: bytes) -> bytes:
    """Google's OpenAI-compatible endpoint sends a list of one error, with `status` as its code."""
    document = decode_object(body.strip()[1:-1])
    error = part_of(document or {}, "error")
    message, status = text_of(error, "message"), text_of(error, "status")
    if message is None:
        return body
    if is_too_long(body):
        return error_body(said_too_long(message), kind="invalid_request_error", code=TOO_LONG)
    return error_body(message, kind="invalid_request_error", code=status.lower() if status else None)


def _of_text(body: bytes) -> bytes:
    """Xinference and servers built with axum (Text Embeddings Inference) name a wrong field in plain text."""
    text = body.decode(errors="replace").strip()
    if not text or text[0] in _NO_TEXT or len(text) > _LONGEST_TEXT:
        return body
    if is_too_long(body):
        return error_body(said_too_long(text), kind="invalid_request_error", code=TOO_LONG)
    return error_body(text, kind="invalid_request_error")


def _message(value: object, levels: int = 4) -> str | None:
    """The first text under one of the usual names; those in a list are joined, each with its location."""
    if isinstance(value, str):
        return value or None
    if levels and isinstance(value, list):
        found = [text for item in cast(list[object], value) if (text := _placed(item, levels - 1))]
        return "; ".join(found) or None
    if levels and isinstance(value, dict):
        fields = cast(Fields, value)
        return next((text for name in _WRAPPERS if (text := _message(fields.get(name), levels - 1))), None)
    return None


def _placed(item: object, levels: int) -> str | None:
    text = _message(item, levels)
    place = cast(Fields, item).get("loc") if isinstance(item, dict) else None
    if text is None or not isinstance(place, list):
        return text
    return f"{'.'.join(str(part) for part in cast(list[object], place))}: {text}"
