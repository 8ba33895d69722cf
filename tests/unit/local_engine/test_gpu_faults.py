"""A GPU's errors become sentences: after a failed step, and while the engine is prepared."""

from subprocess import CalledProcessError

import pytest
import torch

from local_engine.errors import DeviceLost, DoesNotFit, EngineError, StepFailed
from local_engine.gpu_faults import check_answers, preparing

CUDA = torch.device("cuda:1")


def refuse(device: torch.device) -> None:
    raise RuntimeError("CUDA error: an illegal memory access was encountered\nThis might be reported later.")


def answer(device: torch.device) -> None:
    del device


def test_a_device_that_answers_is_not_lost() -> None:
    check_answers(CUDA, answer, is_within_capture=lambda _device: False)
    check_answers(torch.device("cpu"), refuse)


def test_a_device_that_refuses_is_lost_and_says_what_to_do() -> None:
    with pytest.raises(
        DeviceLost,
        match=r"cuda:1 no longer works \(CUDA error: an illegal memory access was encountered\); "
        "restart the engine",
    ):
        check_answers(CUDA, refuse)


def test_a_capture_that_broke_off_leaves_a_device_that_is_lost() -> None:
    """Torch raises its own error for a failed capture before it leaves the capture's stream."""
    with pytest.raises(DeviceLost, match=r"A capture broke off on cuda:1; restart the engine"):
        check_answers(CUDA, answer, is_within_capture=lambda _device: True)


@pytest.mark.parametrize(
    ("error", "kind", "sentence"),
    [
        (torch.OutOfMemoryError("Tried to allocate 2 GiB.\nmore"), DoesNotFit, "memory .* 2 GiB.*--kv-blocks"),
        (RuntimeError("Failed to find C compiler."), StepFailed, "Failed to find C compiler.* needs a C compiler"),
        (CalledProcessError(1, ["gcc"]), StepFailed, "Python's headers"),
        (PermissionError("denied"), StepFailed, "TRITON_CACHE_DIR"),
    ],
)
def test_what_stops_a_start_is_one_sentence(error: Exception, kind: type[EngineError], sentence: str) -> None:
    with pytest.raises(kind, match=sentence), preparing(CUDA):
        raise error


class OutOfResources(Exception):
    """Like Triton's errors, which are not RuntimeErrors."""


def test_what_does_not_compile_is_told_where_its_error_is_named() -> None:
    with pytest.raises(StepFailed, match="out of resource: shared memory"), preparing(CUDA, OutOfResources):
        raise OutOfResources("out of resource: shared memory, Required: 147456, Hardware limit: 101376.")


def test_our_own_refusals_pass() -> None:
    with pytest.raises(DoesNotFit, match="too large"), preparing(CUDA):
        raise DoesNotFit("too large")
