"""The one place where an error becomes an HTTP status and a body in OpenAI's shape."""

import math
from http import HTTPStatus

import msgspec

from backends.endpoints.content_errors import content_error_from
from backends.endpoints.messages_events import messages_error
from gateway.errors import (
    BodyTooLarge,
    BodyTooSlow,
    BreakevenError,
    BudgetExhausted,
    Conflict,
    DatabaseDown,
    Forbidden,
    IdempotencyMismatch,
    InvalidRequest,
    KeyInDoubt,
    LedgerUnavailable,
    ModelNotFound,
    ModelsPaused,
    NoCapableModel,
    NoEligibleModel,
    NotFound,
    Overloaded,
    RateLimitExceeded,
    RequestError,
    Unauthenticated,
    UnsupportedEncoding,
    UpstreamFailed,
)

STATUS: dict[type[BreakevenError], HTTPStatus] = {
    InvalidRequest: HTTPStatus.BAD_REQUEST,
    Unauthenticated: HTTPStatus.UNAUTHORIZED,
    KeyInDoubt: HTTPStatus.SERVICE_UNAVAILABLE,
    Forbidden: HTTPStatus.FORBIDDEN,
    ModelNotFound: HTTPStatus.NOT_FOUND,
    NotFound: HTTPStatus.NOT_FOUND,
    Conflict: HTTPStatus.CONFLICT,
    IdempotencyMismatch: HTTPStatus.UNPROCESSABLE_ENTITY,
    BodyTooLarge: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    UnsupportedEncoding: HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    BodyTooSlow: HTTPStatus.REQUEST_TIMEOUT,
    RateLimitExceeded: HTTPStatus.TOO_MANY_REQUESTS,
    BudgetExhausted: HTTPStatus.TOO_MANY_REQUESTS,
    NoCapableModel: HTTPStatus.BAD_REQUEST,
    ModelsPaused: HTTPStatus.TOO_MANY_REQUESTS,
    NoEligibleModel: HTTPStatus.SERVICE_UNAVAILABLE,
    Overloaded: HTTPStatus.SERVICE_UNAVAILABLE,
    LedgerUnavailable: HTTPStatus.SERVICE_UNAVAILABLE,
    DatabaseDown: HTTPStatus.SERVICE_UNAVAILABLE,
}

DATABASE_DOWN = (
    "The database cannot be used at the moment; the gateway's log says why. Models are served meanwhile. Try again."
)
DATABASE_SECONDS = 5


def status_of(error: BreakevenError) -> int:
    """The HTTP status of an error; the upstream's own status when it blamed the request."""
    if isinstance(error, UpstreamFailed):
        return error.status
    for kind in type(error).__mro__:
        if (status := STATUS.get(kind)) is not None:
            return int(status)
    return int(HTTPStatus.INTERNAL_SERVER_ERROR)


def body_of(error: BreakevenError) -> bytes:
    """`{"error": {message, type, param, code}}`, or the provider's own body if it refused the request."""
    if isinstance(error, UpstreamFailed) and error.body:
        return error.body
    if isinstance(error, RequestError):
        fields = {"message": error.message, "type": error.type, "param": error.param, "code": error.code}
    elif isinstance(error, LedgerUnavailable):
        fields = {"message": str(error), "type": "server_error", "param": None, "code": "ledger_unavailable"}
    elif isinstance(error, DatabaseDown):  # the error's own text names the server and the user
        fields = {"message": DATABASE_DOWN, "type": "server_error", "param": None, "code": "database_unavailable"}
    else:
        message = "Something failed inside the gateway; its log says what."
        fields = {"message": message, "type": "server_error", "param": None, "code": "internal_error"}
    return msgspec.json.encode({"error": fields})


def messages_body_of(error: BreakevenError, request_id: str) -> bytes:
    """The same in Anthropic's format."""
    if isinstance(error, UpstreamFailed) and error.body:
        return error.body
    return messages_error(status_of(error), str(error), request_id=request_id)


def content_body_of(error: BreakevenError, request_id: str) -> bytes:
    """The same in Google's format."""
    wait = error.retry_after_seconds if isinstance(error, RequestError) else None
    return content_error_from(body_of(error), status_of(error), str(error), retry_seconds=wait, request_id=request_id)


def headers_of(error: BreakevenError) -> dict[str, str]:
    """Headers that clients act on: when to retry, and when not to."""
    headers: dict[str, str] = {}
    if isinstance(error, RequestError) and error.retry_after_seconds is not None:
        headers["retry-after"] = str(max(1, math.ceil(error.retry_after_seconds)))
    if isinstance(error, DatabaseDown):
        headers["retry-after"] = str(DATABASE_SECONDS)
    if isinstance(error, RateLimitExceeded):
        headers |= error.headers
    if isinstance(error, Unauthenticated) and not isinstance(error, KeyInDoubt):
        headers["www-authenticate"] = "Bearer"
    if isinstance(error, BodyTooSlow):
        headers["connection"] = "close"
    if isinstance(error, UnsupportedEncoding):
        headers["accept-encoding"] = "gzip, deflate"
    if isinstance(error, BudgetExhausted):
        headers["x-should-retry"] = "false"
    return headers
