"""A fake CUDA device without memory or computation: whole steps of large models run on it in milliseconds, and fail
where a captured step would.

Tensors have only device, type and shape. Reading one, results whose size depends on one, and operations across devices
raise torch's own errors; kernels are recorded instead of launched.
"""
# pyright: basic

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from triton.runtime.jit import JITFunction

DEVICE = torch.device("cuda:0")
# The second and third dimension of a grid.
MOST_PROGRAMS = 65_535
# These accept mixed types here, though a device does not.
PRODUCTS = (torch.ops.aten.linear.default, torch.ops.aten.matmul.default)


@dataclass(slots=True)
class Noted:
    """Kernels with everything that Triton specialises them on, which of them begin early, and torch's operations, in
    order."""

    launches: list[tuple[object, ...]] = field(default_factory=list[tuple[object, ...]])
    early: list[str] = field(default_factory=list[str])
    operations: list[str] = field(default_factory=list[str])

    def count(self, *names: str) -> int:
        """The number of launches of these kernels and operations."""
        return sum(launch[0] in names for launch in self.launches) + sum(name in names for name in self.operations)


class _Indexing(TorchFunctionMode):
    """Replaces slices and copies by operations that need no CUDA build of torch."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.copy_:
            return torch.ops.aten.copy_.default(*args)
        return _cut(*args) if func is torch.Tensor.__getitem__ else func(*args, **(kwargs or {}))


def _cut(tensor: torch.Tensor, key: Any) -> torch.Tensor:
    keys = key if isinstance(key, tuple) else (key,)
    if isinstance(keys[0], torch.Tensor):
        assert keys[0].dtype != torch.bool, "how much a mask leaves is known to nobody but the device"
        return tensor.index_select(0, keys[0])
    at = 0
    for part in keys:
        if isinstance(part, int):
            tensor = torch.ops.aten.select.int(tensor, at, part)
        else:
            tensor = torch.ops.aten.slice.Tensor(tensor, at, part.start, part.stop, part.step or 1)
            at += 1
    return tensor


class _OnDevice(TorchDispatchMode):
    """Records operations, and rejects those with a result on the host or with operands of two types."""

    def __init__(self, noted: Noted) -> None:
        super().__init__()
        self._noted = noted

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        assert not isinstance(out, torch.Tensor) or out.device == DEVICE, f"{func} gives a tensor on {out.device}"
        if func in PRODUCTS:
            types_given = {value.dtype for value in args if isinstance(value, torch.Tensor)}
            assert len(types_given) == 1, f"{func} of {types_given}"
        self._noted.operations.append(str(func))
        return out


def _compiled_for(value: object) -> object:
    if not isinstance(value, torch.Tensor):
        return value
    assert value.device == DEVICE, "a kernel gets a tensor of the host"
    return (value.dtype, value.storage_offset() * value.element_size() % 16 == 0)


@contextmanager
def noting() -> Generator[Noted]:
    """Records launches within the block."""
    noted = Noted()
    launch = JITFunction.__getitem__

    def note(kernel: Any, grid: tuple[int, ...]) -> Callable[..., None]:
        assert all(0 < programs <= MOST_PROGRAMS for programs in grid[1:]), f"{kernel.__name__} over {grid}"

        def run(*args: object, **options: object) -> None:
            values = (*args, *options.values())
            begins_early = options.get("launch_pdl", False)
            assert begins_early == options.get("OVERLAPS", False), f"{kernel.__name__} must wait, and only then"
            if begins_early:
                noted.early.append(kernel.__name__)
            noted.launches.append((kernel.__name__, *(_compiled_for(value) for value in values)))

        return run

    JITFunction.__getitem__ = note  # pyright: ignore[reportAttributeAccessIssue]
    try:
        with _OnDevice(noted):
            yield noted
    finally:
        JITFunction.__getitem__ = launch


@contextmanager
def faked() -> Generator[None]:
    """Within the block, tensors of DEVICE can be created, and it is as capable and as large as a Hopper."""
    ask, ask_capability = torch.cuda.get_device_properties, torch.cuda.get_device_capability
    torch.cuda.get_device_properties = lambda _device: SimpleNamespace(multi_processor_count=132)
    torch.cuda.get_device_capability = lambda _device: (9, 0)
    try:
        with FakeTensorMode(), _Indexing(), torch.inference_mode():
            yield
    finally:
        torch.cuda.get_device_properties, torch.cuda.get_device_capability = ask, ask_capability
