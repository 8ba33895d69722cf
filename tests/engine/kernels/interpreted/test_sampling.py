"""Sampling on the device: the same tokens as the reference, the right distribution, the same draw in any batch."""

from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from local_engine.kernels import reference
from local_engine.kernels.sampling import SamplingTensors, parts_of_a_row, sample


class Row(NamedTuple):
    """How one row is drawn."""

    temperature: float
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0
    position: int = 0


def tensors(rows: list[Row]) -> SamplingTensors:
    columns = list(zip(*rows, strict=True))
    types = (torch.float32, torch.int32, torch.float32, torch.float32, torch.int64, torch.int32)
    return SamplingTensors(*(torch.tensor(column, dtype=kind) for column, kind in zip(columns, types, strict=True)))


def draw(logits: Tensor, rows: list[Row]) -> list[int]:
    return sample(logits, tensors(rows)).tolist()


def test_every_combination_of_filters_draws_what_the_reference_draws() -> None:
    torch.manual_seed(0)
    rows = [
        Row(0.0),
        Row(0.0, top_k=3, top_p=0.5, min_p=0.5),
        Row(1.0, seed=5, position=1),
        Row(0.7, top_k=5, seed=-7, position=100_000),
        Row(1.3, top_p=0.5, seed=2**40 + 3),
        Row(1.0, top_p=0.0, seed=1),
        Row(1.0, top_k=50, top_p=0.9, min_p=0.01, seed=2),
        Row(2.0, min_p=0.2, seed=3),
        Row(2.0, top_k=9_999, seed=4),
    ]
    logits = torch.randn(len(rows), 5000) * 2
    logits[0, [17, 4001]] = 50.0
    logits[3, :7] = logits[3].max()
    logits[6, 100:] = -torch.inf
    wanted = [reference.sample(row_logits, *row) for row_logits, row in zip(logits, rows, strict=True)]
    assert draw(logits, rows) == wanted
    assert wanted[0] == 17


def test_a_draw_depends_on_seed_and_position_but_not_on_the_batch() -> None:
    torch.manual_seed(1)
    logits = torch.randn(1, 300)
    alone = draw(logits, [Row(1.0, top_p=0.95, seed=9, position=3)])
    crowd = [Row(0.5), Row(0.0), Row(1.0, top_p=0.95, seed=9, position=3)]
    assert draw(torch.cat([torch.randn(2, 300), logits]), crowd)[2:] == alone
    others = draw(logits.expand(12, -1), [Row(1.0, seed=9, position=i) for i in range(12)])
    assert len(set(others)) > 3


def test_programs_that_share_a_row_draw_what_one_alone_draws() -> None:
    """The two most likely tokens of the greedy row are equal, and are in the parts of different programs."""
    torch.manual_seed(3)
    rows = [Row(0.0), Row(1.0, seed=5, position=2), Row(1.0, top_p=0.5, seed=6), Row(0.9, min_p=0.05, seed=7)]
    logits = torch.randn(len(rows), 13_000) * 2
    logits[0, [4100, 9000]] = 50.0
    cpu = torch.device("cpu")
    assert [parts_of_a_row(count, 13_000, cpu) for count in (1, 2, 4, 256)] == [4, 2, 1, 1]
    together = draw(logits, rows)
    assert together == [draw(logits[at : at + 1], [row])[0] for at, row in enumerate(rows)]
    assert together[0] == 4100
    plain = [0, 1, 3]
    saved = sample(logits[plain], tensors([rows[at] for at in plain]), cuts=False).tolist()
    assert saved == [together[at] for at in plain]


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@pytest.mark.parametrize("value", [torch.nan, -torch.inf, torch.inf])
def test_logits_that_mean_nothing_still_give_a_token_of_the_vocabulary(value: float) -> None:
    """Any other would be read beyond the embedding, which makes every later step of the process fail."""
    logits = torch.full((3, 300), value)
    drawn = draw(logits, [Row(1.0), Row(0.0), Row(1.0, top_k=4, top_p=0.9, min_p=0.1)])
    assert all(0 <= token < 300 for token in drawn)


@pytest.mark.parametrize(("top_k", "survivors"), [(0, 5), (3, 3)])
def test_draws_follow_the_distribution(top_k: int, survivors: int) -> None:
    """Chi-square of 2,000 seeded draws below its 99.9 % point for four degrees, 18.5.

    The reference draws: it is fast, and the test above compares the kernel with it token by token.
    """
    logits = torch.tensor([2.0, 1.0, 0.0, -0.5, -1.0])
    draws = [reference.sample(logits, *Row(0.8, top_k=top_k, seed=1234, position=i)) for i in range(2000)]
    counts = torch.bincount(torch.tensor(draws), minlength=5).float()
    wanted = (logits[:survivors] / 0.8).softmax(-1) * 2000
    assert not counts[survivors:].any()
    assert float(((counts[:survivors] - wanted) ** 2 / wanted).sum()) < 18.5


def test_noise_is_gumbel_noise() -> None:
    """Mean and variance of 200,000 values: Euler's constant and pi squared over six."""
    noise = reference.sampling_noise(seed=7, position=3, vocabulary=200_000).double()
    assert abs(float(noise.mean()) - 0.57722) < 0.01
    assert abs(float(noise.var()) - 1.64493) < 0.03


def test_philox_known_answers() -> None:
    """The published test vector of Philox-4x32-10 for counter 0 and key 0."""
    words = reference.philox_words(0, torch.zeros(1, dtype=torch.int64), 0).flatten().tolist()
    assert words == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
