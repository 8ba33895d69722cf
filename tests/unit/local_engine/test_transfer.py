"""What is asked of a device after a step that failed."""

import pytest
import torch

from local_engine.errors import DeviceLost
from local_engine.transfer import check_answers


def refuse(device: torch.device) -> None:
    raise RuntimeError("CUDA error: an illegal memory access was encountered\nThis might be reported later.")


def answer(device: torch.device) -> None:
    del device


def test_a_device_that_answers_is_not_lost() -> None:
    check_answers(torch.device("cuda:1"), answer)
    check_answers(torch.device("cpu"), refuse)


def test_a_device_that_refuses_is_lost_and_says_what_to_do() -> None:
    with pytest.raises(
        DeviceLost,
        match=r"cuda:1 computes nothing more \(CUDA error: an illegal memory access was encountered\); "
        "the engine must be started again",
    ):
        check_answers(torch.device("cuda:1"), refuse)
