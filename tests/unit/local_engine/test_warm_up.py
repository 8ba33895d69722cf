"""The steps before the first request: every shape once, nothing left behind, failures reported at start."""

import pytest
import torch

from local_engine.errors import StepFailed
from local_engine.scheduler import Batch
from local_engine.warm_up import warm_up, warm_up_lengths
from tests.unit.local_engine.scripted import SlotRunner, expected_answer, make_core, make_request


class Recording(SlotRunner):
    def __init__(self) -> None:
        super().__init__(64, 4)
        self.counts: list[list[int]] = []
        self.drawn: set[float] = set()

    def run(self, batch: Batch) -> torch.Tensor:
        self.counts.append([row.count for row in batch.rows])
        self.drawn.update(row.request.params.top_p for row in batch.rows if not row.request.params.is_greedy)
        return super().run(batch)


class Broken(SlotRunner):
    def run(self, batch: Batch) -> torch.Tensor:
        raise RuntimeError("out of memory")


@pytest.mark.parametrize(
    ("most", "lengths"), [(1, [1]), (2, [2]), (48, [2, 4, 8, 16, 32, 48]), (64, [2, 4, 8, 16, 32, 64])]
)
def test_lengths_double_up_to_a_whole_step(most: int, lengths: list[int]) -> None:
    assert warm_up_lengths(most) == lengths


def test_every_length_is_computed_alone_and_beside_an_answer_and_nothing_is_left() -> None:
    runner = Recording()
    core, kv_cache = make_core(blocks=64, block_size=4, running=4, budget=48, runner=runner)
    warm_up(core, 48)
    for length in (2, 4, 8, 16, 32, 48):
        assert [length] in runner.counts
        assert [1, min(length, 47)] in runner.counts, "an answer takes one of the step's tokens"
    assert runner.drawn == {0.9, 1.0}, "with a cut and without, the draw is another kernel"
    assert kv_cache.pool.free_blocks == kv_cache.pool.total_blocks
    # Prompts with the same tokens are not answered from the warm-up's cached blocks.
    request = make_request("r", [0] * 20)
    core.add(request)
    while core.has_work:
        core.step()
    assert request.cached_prompt_tokens == 0
    assert request.output_token_ids == expected_answer([0] * 20, len(request.output_token_ids))


def test_a_step_that_fails_is_told_before_anybody_asks() -> None:
    core, _ = make_core(blocks=64, block_size=4, running=4, budget=48, runner=Broken(64, 4))
    with pytest.raises(StepFailed, match="cannot compute a prompt of 2 tokens: The step failed: out of memory"):
        warm_up(core, 48)
