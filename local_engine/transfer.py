"""Small tensors between host and device without either waiting for the other. Knows nothing of what they mean."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch


def on_device(device: torch.device) -> AbstractContextManager[object]:
    """Makes the device the current one of this thread: kernels, streams and events go there and nowhere else."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def send(values: Sequence[int] | Sequence[float], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """A tensor on the device. From pageable memory a copy would wait until the device has done all it was told."""
    is_cuda = device.type == "cuda"
    return torch.tensor(values, dtype=dtype, pin_memory=is_cuda).to(device, non_blocking=is_cuda)


@dataclass(frozen=True, slots=True)
class Arriving:
    """Numbers on their way to the host, to be looked at after `wait`."""

    _host: torch.Tensor
    _copied: torch.cuda.Event | None

    def wait(self) -> list[int]:
        """Wait for the copy alone, not for what the device was told after it."""
        if self._copied is not None:
            self._copied.synchronize()
        return self._host.tolist()


def fetch(values: torch.Tensor) -> Arriving:
    """Begin to copy a tensor to the host, in stream order."""
    if values.device.type != "cuda":
        return Arriving(values, None)
    host = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
    host.copy_(values, non_blocking=True)
    copied = torch.cuda.Event()
    copied.record()
    return Arriving(host, copied)
