"""Explains a GPU's errors in sentences that say what to do. Knows no engine."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from subprocess import CalledProcessError

import torch

from local_engine.errors import DeviceLost, DoesNotFit, StepFailed


def check_answers(
    device: torch.device,
    synchronize: Callable[[torch.device], object] = torch.cuda.synchronize,
    *,
    is_within_capture: Callable[[torch.device], bool] | None = None,
) -> None:
    """Raises DeviceLost if a GPU refuses everything: a kernel's fault stays with the process until it ends. So does an
    interrupted capture, which torch never leaves (before 2.12 not even its allocator does)."""
    if device.type != "cuda":
        return
    try:
        synchronize(device)
        is_broken = (is_within_capture or _is_on_another_stream)(device)
    except RuntimeError as error:
        raise DeviceLost(f"{device} no longer works ({_first_line(error)}); restart the engine.") from error
    if is_broken:
        raise DeviceLost(f"A capture broke off on {device}; restart the engine.")


def _is_on_another_stream(device: torch.device) -> bool:
    """Nothing but an interrupted capture leaves this thread on another stream."""
    return torch.cuda.current_stream(device) != torch.cuda.default_stream(device)


@contextmanager
def preparing(device: torch.device, *others: type[Exception]) -> Generator[None]:
    """For loading and capturing: raises DoesNotFit or StepFailed for errors of torch and Triton. Triton's own exception
    types are passed in, as they exist only where Triton is installed."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise DoesNotFit(
            f"{device} ran out of memory while the engine was prepared ({_first_line(error)}). Give it a smaller "
            "--context-window, --max-concurrency or weight format, fewer --kv-blocks, or a GPU of its own."
        ) from error
    except (RuntimeError, CalledProcessError, OSError, *others) as error:
        raise StepFailed(
            f"The engine could not be prepared on {device} ({_first_line(error)}). Its kernels are compiled at start, "
            "which needs a C compiler, Python's headers and a folder to write to (TRITON_CACHE_DIR)."
        ) from error


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
