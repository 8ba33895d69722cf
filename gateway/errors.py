"""Everything the gateway refuses or fails at, as one tree. The HTTP status of each is chosen in openai_errors.py.

BreakevenError
├── ConfigurationError       names file, line and field; stops the start
├── StateError               the home directory or database cannot be used (disk full, locked, too new)
│   └── DatabaseDown         temporary: models are still served, whatever needs the database is refused
├── StoreDown                a store beside the database is unreachable; the caller does without it, or refuses
├── NoticeNotTaken           a webhook did not accept a budget notice; it is sent again later
├── LedgerUnavailable        no request is accepted that could not be booked
└── RequestError             returned to the caller: message, type, param, code
    ├── InvalidRequest       the body is not what the endpoint accepts
    │   └── ContextTooLong   no allowed model has a large enough context window
    ├── BodyTooLarge
    ├── UnsupportedEncoding  415: the body's compression is not supported
    ├── Unauthenticated      no key, or an unknown one
    │   └── KeyInDoubt       503: not in memory, and the database, which might know it, is unreachable
    ├── Forbidden            a valid key without the permission
    ├── ModelNotFound        not in the catalogue, or not allowed for this key
    ├── NotFound
    ├── Conflict             a compare-and-set lost
    ├── IdempotencyMismatch  an idempotency key reused with a different request
    ├── RateLimitExceeded    requests or tokens per minute; carries Retry-After
    │   └── ModelLimited     only these models are at their limit; others may serve
    ├── BodyTooSlow          408: the client stopped sending
    ├── BudgetExhausted      429 insufficient_quota, not to be retried
    ├── NoEligibleModel      503 with the reason for each candidate
    │   ├── NoCapableModel   400: no candidate, or nothing this key may use, can ever serve the request
    │   └── ModelsPaused     429 with Retry-After: a backend that could serve asked us to wait
    ├── Overloaded           503 with Retry-After
    └── UpstreamFailed       every attempt failed; the attempts are listed
"""

from collections.abc import Mapping, Sequence


class BreakevenError(Exception):
    """The root. Its text is one sentence that says what is wrong and what to do about it."""

    request_id: str | None = None
    """Of the ledger entry that records the failure, if there is one."""


class ConfigurationError(BreakevenError):
    """A configuration or rules file is wrong."""

    def __init__(self, problem: str, *, file: str = "", line: int | None = None, field: str = "") -> None:
        where = ":".join(str(part) for part in (file, line) if part)
        super().__init__(": ".join(part for part in (where, field, problem) if part))
        self.problem = problem
        self.file = file
        self.line = line
        self.field = field


class StateError(BreakevenError):
    """The state directory, database or a port cannot be used."""


class DatabaseDown(StateError):
    """The database cannot be used right now; the text says why."""


class StoreDown(BreakevenError):
    """A store beside the database (idempotency keys, kept answers) is unreachable right now."""


class NoticeNotTaken(BreakevenError):
    """A webhook refused a notice or is unreachable. The text omits the address, which is a secret."""


class LedgerUnavailable(BreakevenError):
    """The journal cannot accept another request."""


class RequestError(BreakevenError):
    """An error returned to the caller, in OpenAI's error format."""

    type = "invalid_request_error"

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code
        self.retry_after_seconds: float | None = None


class InvalidRequest(RequestError):
    """The body is not what the endpoint accepts."""


class ContextTooLong(InvalidRequest):
    """The prompt does not fit any model that may serve it."""

    def __init__(self, message: str, *, param: str = "messages") -> None:
        super().__init__(message, param=param, code="context_length_exceeded")


class BodyTooLarge(RequestError):
    """The body is over the configured limit."""


class UnsupportedEncoding(RequestError):
    """The body's compression is not supported."""

    def __init__(self, message: str) -> None:
        super().__init__(message, param="content-encoding", code="unsupported_encoding")


class Unauthenticated(RequestError):
    """No key, or an unknown one."""

    type = "authentication_error"

    def __init__(self, message: str) -> None:
        super().__init__(message, code="invalid_api_key")


class KeyInDoubt(Unauthenticated):
    """A key unknown to this process while the database is unreachable; it may have been created elsewhere just now."""

    type = "server_error"

    def __init__(self, *, retry_after_seconds: float) -> None:
        super().__init__(
            "This API key is not known here, and the database, which might know it, cannot be reached. Try again."
        )
        self.code = "database_unavailable"
        self.retry_after_seconds = retry_after_seconds


class Forbidden(RequestError):
    """A valid key without permission for this."""

    type = "permission_error"


class ModelNotFound(RequestError):
    """Not in the catalogue, or not allowed for this key: deliberately indistinguishable."""

    def __init__(self, model: str, known: Sequence[str]) -> None:
        listed = ", ".join(known[:20]) + (", ..." if len(known) > 20 else "")
        super().__init__(
            f'The model {model[:100]!r} does not exist or this key may not use it. Use "auto" or one of: {listed}.',
            param="model",
            code="model_not_found",
        )


class NotFound(RequestError):
    """No such thing, or it belongs to someone else."""


class Conflict(RequestError):
    """A compare-and-set lost."""


class IdempotencyMismatch(RequestError):
    """An idempotency key was already used with a different request."""

    def __init__(self, message: str) -> None:
        super().__init__(message, param="idempotency-key", code="idempotency_mismatch")


class RateLimitExceeded(RequestError):
    """A limit per minute was reached."""

    type = "rate_limit_error"

    def __init__(self, message: str, *, retry_after_seconds: float) -> None:
        super().__init__(message, code="rate_limit_exceeded")
        self.retry_after_seconds = retry_after_seconds
        self.headers: Mapping[str, str] = {}


class ModelLimited(RateLimitExceeded):
    """A model's rate or a tier's quota is used up; a routed request goes to another model."""

    def __init__(self, message: str, *, models: frozenset[str], retry_after_seconds: float) -> None:
        super().__init__(message, retry_after_seconds=retry_after_seconds)
        self.models = models


class BodyTooSlow(RequestError):
    """The body did not arrive in time."""


class BudgetExhausted(RequestError):
    """The budget of the key or team is spent; retrying cannot help."""

    type = "insufficient_quota"

    def __init__(self, message: str) -> None:
        super().__init__(message, code="insufficient_quota")


class NoEligibleModel(RequestError):
    """No candidate can serve this request; the message gives the reason for each."""

    type = "server_error"

    def __init__(
        self, rule: str, reasons: Mapping[str, str], *, why_none: str = "the rule names no model", advice: str = ""
    ) -> None:
        """`why_none` is used when there were no candidates at all; `advice` is appended to the message."""
        listed = "; ".join(f"{model}: {reason}" for model, reason in reasons.items()) or why_none
        said = f"No model may serve this request under rule {rule!r}: {listed}. {advice}"
        super().__init__(said.strip(), code="no_eligible_model")
        self.reasons = dict(reasons)


class NoCapableModel(NoEligibleModel):
    """No candidate has a required capability, or the key may use none of them: retrying cannot help."""

    type = "invalid_request_error"


class ModelsPaused(NoEligibleModel):
    """A candidate's backend is full or limits our rate; the same response as for a request that it refused itself."""

    type = "rate_limit_error"

    def __init__(self, rule: str, reasons: Mapping[str, str]) -> None:
        super().__init__(rule, reasons)
        self.code = "rate_limit_exceeded"


class Overloaded(RequestError):
    """This process accepts no more requests for now."""

    type = "server_error"

    def __init__(self, message: str, *, retry_after_seconds: float) -> None:
        super().__init__(message, code="overloaded")
        self.retry_after_seconds = retry_after_seconds


class UpstreamFailed(RequestError):
    """Every attempt failed before its first chunk."""

    type = "server_error"

    def __init__(
        self, message: str, *, status: int, retry_after_seconds: float | None = None, body: bytes = b""
    ) -> None:
        """`body`, if given, is sent instead of the message, in the wire format of the call."""
        super().__init__(message, code="upstream_failed")
        self.body = body
        self.status = status
        self.retry_after_seconds = retry_after_seconds
