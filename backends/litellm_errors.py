"""Translates litellm's exceptions to our error tree. Knows their names and words, and does not import litellm."""

import re
from collections.abc import Mapping
from traceback import walk_tb
from typing import Final, cast

from backends.errors import (
    BackendError,
    StreamBroken,
    StreamStalled,
    UnreadableAnswer,
    Untranslatable,
    UpstreamAuth,
    UpstreamRejected,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from backends.formats.json_objects import decode_object
from backends.formats.openai import error_body
from backends.http.errors import TOO_LONG, error_from_status, google_status, is_too_long
from backends.http_backend import where_another_may_do
from backends.protocol import Call

_ANSWERED: Final = re.compile(
    r"litellm\.(?:\w+: ){1,2}(?:\w+Exception (?:\w+ )?- )?(?:litellm\.APIError: )?(?:Invalid response object"
    r"|LiteLLM: provider returned |Empty or invalid response from LLM endpoint|Unexpected string response from "
    r"|Unable to get json response|Error converting to valid response block)"
    r"|litellm\.(InternalServerError|APIConnectionError): \1: \w+Exception - Expecting .{1,60}: line \d"
)
"""How litellm's errors, most of them as of a status 500, and Bedrock's and Gemini's as of a 400, say that an answer
came that it could not read."""
_MISREAD: Final = (AttributeError, LookupError, TypeError, ValueError)
_READERS: Final = frozenset(
    {
        "__stream__",
        "_transform_response",
        "chunk_creator",
        "chunk_parser",
        "convert_str_chunk_to_generic_chunk",
        "transform_response",
    }
)
"""Functions of litellm's, and of the OpenAI client within it, that read an answer or a piece of one."""
_ADDRESS: Final = re.compile(rb":(?:\\?/|\\u002f){2}", re.IGNORECASE)


def translated(error: Exception, call: Call, *, backend: str) -> BackendError:
    """The error for a call that got no answer."""
    kind, message = type(error).__name__, str(getattr(error, "message", ""))
    status, refused = getattr(error, "status_code", None), getattr(error.__context__, "status_code", None)
    if refused in (400, 413, 422):
        # litellm goes by words, as `Invalid API Key`, `Overloaded`, `rate limit` or `timed out`, which a refusal
        # may only quote of the caller.
        kind, status = "BadRequestError", google_status(refused, message.encode())
    if isinstance(error, TimeoutError) or kind == "Timeout":
        return UpstreamTimeout(f"{backend} sent no answer in time")
    if _ANSWERED.match(message) or _is_misread(error):
        return _unreadable(backend)
    if not isinstance(status, int) or kind == "APIConnectionError":
        return UpstreamUnavailable(f"{backend} failed ({type(error).__name__})")
    if 200 <= status < 300 or kind == "APIResponseValidationError":
        return _unreadable(backend)
    response = getattr(error, "response", None)
    headers = cast(Mapping[str, str], getattr(response, "headers", None) or {})
    code = TOO_LONG if is_too_long(message.encode()) else None
    body = error_body(message, kind="invalid_request_error", code=code)
    theirs = message.partition(" - ")[2].encode()  # "litellm.RateLimitError: VertexAIException - {...}"
    made = error_from_status(status, headers, theirs if decode_object(theirs) else body, backend=backend)
    if isinstance(made, UpstreamAuth) and status == 403 and _ADDRESS.search(call.body):
        # A bucket's file that is not ours to read: that says nothing against our key.
        return UpstreamRejected(f"{made.message}: what the request names by its address may not be ours to read")
    if not isinstance(made, UpstreamRejected):
        return made
    made.body = body
    return made if isinstance(made, Untranslatable) else where_another_may_do(made, body, call.upstream_model)


def broken(error: Exception, call: Call, *, backend: str, is_started: bool) -> BackendError:
    """The error for an exception in the middle of a stream."""
    if not is_started:
        return translated(error, call, backend=backend)
    kind = StreamStalled if isinstance(error, TimeoutError) else StreamBroken
    return kind(f"{backend} broke off its answer ({type(error).__name__})")


def _unreadable(backend: str) -> UnreadableAnswer:
    return UnreadableAnswer(f"{backend} sent an answer that litellm cannot read")


def _is_misread(error: BaseException | None) -> bool:
    """Whether litellm failed at an answer that lacks what it expects: a KeyError, which it reports like a connection
    that failed."""
    while error is not None:
        names = (frame.f_code.co_name for frame, _ in walk_tb(error.__traceback__))
        if isinstance(error, _MISREAD) and not _READERS.isdisjoint(names):
            return True
        error = error.__context__
    return False
