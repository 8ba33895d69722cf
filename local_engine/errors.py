"""Every way the engine refuses, as one tree; only openai_server chooses HTTP statuses.

EngineError
├── ModelUnavailable       the weights could not be fetched, found or verified
├── ModelUnsupported       a readable file of an architecture or quantisation that we do not run
├── DoesNotFit             weights and KV cache exceed the available memory; states the numbers
├── InvalidRequest         the caller's fault; names the parameter
│   ├── ContextLengthExceeded
│   └── NotOffered         nothing is wrong with it, and another server may take it
├── QueueFull              try again after `retry_after_seconds`
├── EngineDraining         the process is shutting down; another one may answer
├── StepFailed             a forward pass raised; its requests are lost, the engine continues
└── DeviceLost             the device computes nothing any more; only a new process can
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
    """The request is wrong in a way that its sender can fix."""

    code: str | None = None

    def __init__(self, message: str, *, parameter: str | None = None) -> None:
        super().__init__(message)
        self.parameter = parameter


class ContextLengthExceeded(InvalidRequest):
    """The prompt leaves no room for an answer in the context window."""

    code = "context_length_exceeded"


class NotOffered(InvalidRequest):
    """Nothing is wrong with it, and another server may take it. The gateway goes by the code, OpenAI's."""

    code = "unsupported_parameter"


class QueueFull(EngineError):
    """Too many requests are waiting already."""

    def __init__(self, message: str, *, retry_after_seconds: float) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class EngineDraining(EngineError):
    """The process finishes what runs and accepts nothing new."""


class StepFailed(EngineError):
    """A forward pass raised; the requests in that step are lost."""


class DeviceLost(EngineError):
    """After a fault the device refuses everything; the process must end."""
