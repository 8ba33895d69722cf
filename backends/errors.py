"""Every way a backend fails, as one tree.

BackendError
├── ConnectFailed        nothing was sent: safe to retry anywhere
│   └── NoFilesLeft      this process is out of file descriptors, which says nothing about the upstream
├── UpstreamTimeout      no first byte in time; it may be billed
├── RateLimited          429, with Retry-After when given
├── UpstreamUnavailable  5xx, overloaded, or the connection was reset before the first chunk; then it may be billed
│   └── UnreadableAnswer 2xx without a readable answer: cut off, empty, another format; it may be billed
├── UpstreamRejected     4xx that a retry cannot fix: the caller's fault; carries the body to pass on
│   └── Untranslatable   this backend's format cannot express it, or it lacks the endpoint or model; another may do
├── UpstreamAuth         401/403: our key for that provider is wrong; the caller must not see the provider's body
└── StreamBroken         after the first chunk: reset, stalled, truncated or malformed
    └── StreamStalled    no bytes for the idle timeout
"""

from backends.usage import Usage


class BackendError(Exception):
    """A backend did not answer. `is_retryable`: another backend may be tried before the first chunk; `may_be_billed`:
    the upstream may have worked on the call and charge for it; `usage`: what it reported nevertheless."""

    is_retryable = True
    may_be_billed = False
    usage: Usage | None = None

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.status = status


class ConnectFailed(BackendError):
    """The connection could not be opened."""


class NoFilesLeft(ConnectFailed):
    """This process or its machine has reached its limit of open files."""

    is_retryable = False


class UpstreamTimeout(BackendError):
    """The first byte did not come within the first-byte timeout."""

    may_be_billed = True


class RateLimited(BackendError):
    """The upstream answered 429."""

    def __init__(self, message: str, *, status: int | None = 429, retry_after_seconds: float | None = None) -> None:
        super().__init__(message, status=status)
        self.retry_after_seconds = retry_after_seconds


class UpstreamUnavailable(BackendError):
    """The upstream answered 5xx (529 included) or dropped the connection before the first chunk."""

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        retry_after_seconds: float | None = None,
        may_be_billed: bool = False,
    ) -> None:
        super().__init__(message, status=status)
        self.retry_after_seconds = retry_after_seconds
        self.may_be_billed = may_be_billed


class UnreadableAnswer(UpstreamUnavailable):
    """The upstream answered 2xx, but without a usable answer. It may be billed nevertheless.

    `usage` is what it reported, if that could be read; else `output_characters` is the length of the partial answer.
    """

    def __init__(self, message: str, *, usage: Usage | None = None, output_characters: int = 0) -> None:
        super().__init__(message)
        self.usage = usage
        self.output_characters = output_characters


class UpstreamAuth(BackendError):
    """The upstream refused our credentials."""


class UpstreamRejected(BackendError):
    """The upstream refused this request because of its content (400, 404, 413, 422). `is_filtered`: its filter did."""

    is_retryable = False
    is_filtered = False

    def __init__(self, message: str, *, status: int = 400, body: bytes = b"") -> None:
        super().__init__(message, status=status)
        self.body = body


class Untranslatable(UpstreamRejected):
    """The request cannot be expressed in this backend's wire format, or the backend lacks the endpoint or model."""

    is_retryable = True


class StreamBroken(BackendError):
    """The answer was cut, reset or malformed after its first chunk; never retried, never passed off as complete."""

    is_retryable = False


class StreamStalled(StreamBroken):
    """No byte came for the idle timeout."""
