"""Small tensors between host and device, without either waiting for the other. Does not know what they mean."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch


def on_device(device: torch.device) -> AbstractContextManager[object]:
    """Makes the device this thread's current one: kernels, streams and events are created there."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def send(values: Sequence[int] | Sequence[float], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """A tensor on the device. From pageable memory, a copy would wait for all work queued on the device."""
    is_cuda = device.type == "cuda"
    return torch.tensor(values, dtype=dtype, pin_memory=is_cuda).to(device, non_blocking=is_cuda)


@dataclass(frozen=True, slots=True)
class Arriving:
    """Numbers on their way to the host, available after `wait`."""

    _host: torch.Tensor
    _copied: torch.cuda.Event | None

    def wait(self) -> list[int]:
        """Waits only for the copy, not for work queued after it."""
        if self._copied is not None:
            self._copied.synchronize()
        return self._host.tolist()


def fetch(values: torch.Tensor) -> Arriving:
    """Begins copying a tensor to the host, in stream order."""
    if values.device.type != "cuda":
        return Arriving(values, None)
    host = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
    host.copy_(values, non_blocking=True)
    copied = torch.cuda.Event()
    copied.record()
    return Arriving(host, copied)
