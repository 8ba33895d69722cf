"""Errors in the format of Google's APIs, for callers of Gemini's endpoints. Pure.

https://cloud.google.com/apis/design/errors
"""

import math
from collections.abc import Mapping
from typing import Final

import msgspec

from backends.formats.json_objects import Fields, decode_object, part_of, text_of
from backends.http.errors import is_too_long

WORDS: Final[Mapping[int, str]] = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    405: "UNIMPLEMENTED",
    408: "DEADLINE_EXCEEDED",
    409: "ABORTED",
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    500: "INTERNAL",
    501: "UNIMPLEMENTED",
    502: "UNAVAILABLE",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
DOMAIN: Final = "breakeven"
_TYPES: Final = "type.googleapis.com/google.rpc."
_TOO_LONG: Final = "exceeds the maximum number of tokens allowed"
"""Google's words, by which clients know that a conversation has to be shortened."""


def content_error(
    status: int,
    message: str,
    *,
    code: str | None = None,
    field: str | None = None,
    retry_seconds: float | None = None,
    request_id: str | None = None,
) -> bytes:
    """An error body. Google's `status` word follows from the HTTP status; everything else known is in `details`."""
    details: list[Fields] = []
    if code:
        details.append({"@type": f"{_TYPES}ErrorInfo", "reason": code.upper(), "domain": DOMAIN})
    if field:
        violation = {"field": field, "description": message}
        details.append({"@type": f"{_TYPES}BadRequest", "fieldViolations": [violation]})
    if retry_seconds is not None:
        details.append({"@type": f"{_TYPES}RetryInfo", "retryDelay": f"{max(1, math.ceil(retry_seconds))}s"})
    if request_id:
        details.append({"@type": f"{_TYPES}RequestInfo", "requestId": request_id})
    error: Fields = {"code": status, "message": message, "status": word_of(status)}
    return msgspec.json.encode({"error": error | ({"details": details} if details else {})})


def content_error_from(
    body: bytes, status: int, otherwise: str, *, retry_seconds: float | None = None, request_id: str | None = None
) -> bytes:
    """A provider's error body in Google's format: unchanged if it is Google's, else converted from OpenAI's.
    `otherwise` is the message if it has none."""
    error = part_of(decode_object(body) or {}, "error")
    if text_of(error, "status") and isinstance(error.get("code"), int):
        return body
    message = text_of(error, "message") or otherwise
    if is_too_long(body) and _TOO_LONG not in message:
        message = f"The input token count {_TOO_LONG}: {message}"
    return content_error(
        status,
        message,
        code=text_of(error, "code"),
        field=text_of(error, "param"),
        retry_seconds=retry_seconds,
        request_id=request_id,
    )


def content_error_event(status: int, message: str) -> bytes:
    """The error as the last event of a stream."""
    return b"data: " + content_error(status, message) + b"\n\n"


def word_of(status: int) -> str:
    """Google's name of an HTTP status."""
    return WORDS.get(status, "INVALID_ARGUMENT" if 400 <= status < 500 else "INTERNAL")
