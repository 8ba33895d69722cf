"""Everything the gateway refuses or fails at, as one tree. The HTTP status of each is chosen in openai_errors.py.

BreakevenError
├── ConfigurationError       file, line and field of what is wrong; stops the start
├── StateError               the home directory or database cannot be used (disk full, locked, too new)
│   └── DatabaseDown         not now: models are served without it, what needs it is refused
├── StoreDown                a store beside the database cannot be asked now; whoever asked it does without, or refuses
├── NoticeNotTaken           a webhook took no notice of a budget; it is sent again later
├── LedgerUnavailable        nothing may be accepted that could not be booked
└── RequestError             the caller is told: message, type, param, code
    ├── InvalidRequest       the body is not what the endpoint takes
    │   └── ContextTooLong   no allowed model has a window for this prompt
    ├── BodyTooLarge
    ├── UnsupportedEncoding  415: the body is compressed in a way that is not read here
    ├── Unauthenticated      no key, or not one of ours
    │   └── KeyInDoubt       503: not known here, and the database, which may know it, cannot be asked now
    ├── Forbidden            a key of ours that may not do this
    ├── ModelNotFound        not in the catalogue, or not allowed to this key
    ├── NotFound
    ├── Conflict             a compare-and-set lost
    ├── IdempotencyMismatch  an idempotency key with another request
    ├── RateLimitExceeded    requests or tokens per minute; carries Retry-After
    │   └── ModelLimited     only these models are at their limit; others may serve
    ├── BodyTooSlow          408: its sender stopped sending
    ├── BudgetExhausted      429 insufficient_quota, not to be retried
    ├── NoEligibleModel      503 with the reason for each candidate
    │   ├── NoCapableModel   400: what is asked for is beyond every candidate or this key, now and later
    │   └── ModelsPaused     429 with Retry-After: a backend that could serve asked us to wait
    ├── Overloaded           503 with Retry-After
    └── UpstreamFailed       every attempt failed; the attempts are listed
"""

from collections.abc import Mapping, Sequence


class BreakevenError(Exception):
    """The root: its text is one sentence that says what was wrong and what to do."""

    request_id: str | None = None
    """Of the ledger entry that tells of it, where there is one."""


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
    """The database cannot be used at this moment; what is wrong with it stands in the text."""


class StoreDown(BreakevenError):
    """A store beside the database (idempotency keys, kept answers) cannot be asked now."""


class NoticeNotTaken(BreakevenError):
    """A webhook refused a notice, or cannot be reached. Its text does not name the address, which is a secret."""


class LedgerUnavailable(BreakevenError):
    """The journal cannot take another request."""


class RequestError(BreakevenError):
    """Something the caller is told, in OpenAI's error shape."""

    type = "invalid_request_error"

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code
        self.retry_after_seconds: float | None = None


class InvalidRequest(RequestError):
    """The body is not what the endpoint takes."""


class ContextTooLong(InvalidRequest):
    """The prompt does not fit any model that may serve it."""

    def __init__(self, message: str, *, param: str = "messages") -> None:
        super().__init__(message, param=param, code="context_length_exceeded")


class BodyTooLarge(RequestError):
    """The body is over the configured limit."""


class UnsupportedEncoding(RequestError):
    """The body is compressed in a way that is not read here."""

    def __init__(self, message: str) -> None:
        super().__init__(message, param="content-encoding", code="unsupported_encoding")


class Unauthenticated(RequestError):
    """No key, or not one of ours."""

    type = "authentication_error"

    def __init__(self, message: str) -> None:
        super().__init__(message, code="invalid_api_key")


class KeyInDoubt(Unauthenticated):
    """Not a key that is known here; one that was made a moment ago elsewhere would not be either."""

    type = "server_error"

    def __init__(self, *, retry_after_seconds: float) -> None:
        super().__init__(
            "This API key is not known here, and the database, where it may stand since a moment ago, cannot be asked "
            "now. Try again."
        )
        self.code = "database_unavailable"
        self.retry_after_seconds = retry_after_seconds


class Forbidden(RequestError):
    """A key of ours that may not do this."""

    type = "permission_error"


class ModelNotFound(RequestError):
    """Not in the catalogue, or not allowed to this key: the two look alike on purpose."""

    def __init__(self, model: str, known: Sequence[str]) -> None:
        listed = ", ".join(known[:20]) + (", ..." if len(known) > 20 else "")
        super().__init__(
            f'The model {model[:100]!r} does not exist or this key may not use it. Use "auto" or one of: {listed}.',
            param="model",
            code="model_not_found",
        )


class NotFound(RequestError):
    """No such thing, or not yours."""


class Conflict(RequestError):
    """A compare-and-set lost."""


class IdempotencyMismatch(RequestError):
    """An idempotency key was used with another request before."""

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
    """No candidate may serve this request; each one's reason is in the message."""

    type = "server_error"

    def __init__(
        self, rule: str, reasons: Mapping[str, str], *, why_none: str = "the rule names no model", advice: str = ""
    ) -> None:
        """`why_none` is said where there was no candidate at all, `advice` at the end."""
        listed = "; ".join(f"{model}: {reason}" for model, reason in reasons.items()) or why_none
        said = f"No model may serve this request under rule {rule!r}: {listed}. {advice}"
        super().__init__(said.strip(), code="no_eligible_model")
        self.reasons = dict(reasons)


class NoCapableModel(NoEligibleModel):
    """No candidate has an ability that the request needs, or its key may use none: asking again cannot help."""

    type = "invalid_request_error"


class ModelsPaused(NoEligibleModel):
    """A candidate's backend is full or limits our rate; told as whoever met its refusal was told."""

    type = "rate_limit_error"

    def __init__(self, rule: str, reasons: Mapping[str, str]) -> None:
        super().__init__(rule, reasons)
        self.code = "rate_limit_exceeded"


class Overloaded(RequestError):
    """This process takes no more for now."""

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
        """`body` is what the caller is shown instead of the message, in the wire format of its call."""
        super().__init__(message, code="upstream_failed")
        self.body = body
        self.status = status
        self.retry_after_seconds = retry_after_seconds
