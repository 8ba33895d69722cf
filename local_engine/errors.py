"""Every way the engine refuses, as one tree; HTTP statuses are chosen in openai_server alone.

EngineError
├── ModelUnavailable       the weights could not be fetched, found or verified
├── ModelUnsupported       a file we can read, an architecture or quantisation we do not run
├── DoesNotFit             weights and KV cache exceed the memory at hand; carries the numbers
├── InvalidRequest         the caller's fault; names the parameter
│   └── ContextLengthExceeded
├── QueueFull              try again after `retry_after_seconds`
├── EngineDraining         the process is going down; another one may answer
├── StepFailed             a forward pass raised; the requests in it are lost, the engine goes on
└── DeviceLost             the device computes nothing more; only a new process can
"""


class EngineError(Exception):
    """The engine refused or failed."""


class ModelUnavailable(EngineError):
    """The weights could not be fetched, found or verified."""


class ModelUnsupported(EngineError):
    """The file is readable, but its architecture or quantisation is not one we run."""


class DoesNotFit(EngineError):
    """Weights and KV cache exceed the memory at hand."""


class InvalidRequest(EngineError):
    """The request is wrong in a way its sender can cure."""

    code: str | None = None

    def __init__(self, message: str, *, parameter: str | None = None) -> None:
        super().__init__(message)
        self.parameter = parameter


class ContextLengthExceeded(InvalidRequest):
    """The prompt leaves no room for an answer in the context window."""

    code = "context_length_exceeded"


class QueueFull(EngineError):
    """Too many requests wait already."""

    def __init__(self, message: str, *, retry_after_seconds: float) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class EngineDraining(EngineError):
    """The process finishes what runs and takes nothing new."""


class StepFailed(EngineError):
    """A forward pass raised; the requests in that step are lost."""


class DeviceLost(EngineError):
    """The device refuses everything since a fault; the process must end."""
