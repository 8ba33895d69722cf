"""A device that accepts a batch before the host has seen the previous one's tokens: same answers, nothing lost, no
wait."""

from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from local_engine.engine_core import Delta, EngineCore
from local_engine.request import Request, Status
from local_engine.scheduler import Batch
from tests.unit.local_engine.scripted import (
    AheadSteps,
    SlotRunner,
    direct,
    expected_answer,
    make_core,
    make_request,
    run_all,
)

PROMPT = [5, 4, 3, 2, 1]
ANSWER = expected_answer(PROMPT, 20)


@pytest.fixture
def steps() -> Iterator[AheadSteps]:
    """A device with 64 blocks of 4 tokens, as in `make_core`."""
    device = AheadSteps(SlotRunner(64, 4))
    yield device
    device.close()


def finish(core: EngineCore) -> list[Delta]:
    deltas: list[Delta] = []
    while core.has_work:
        deltas += core.step().deltas
    return deltas


def test_a_step_is_begun_before_the_one_before_it_is_waited_for(steps: AheadSteps) -> None:
    core, _ = make_core(steps=steps)
    run_all(core, [make_request("1", PROMPT, max_tokens=4)])
    assert steps.told == [
        ("begin", 0), ("begin", 1), ("wait", 0), ("begin", 2), ("wait", 1), ("begin", 3), ("wait", 2), ("wait", 3),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "params", [{"presence_penalty": 0.5}, {"frequency_penalty": 0.5}, {"repetition_penalty": 1.5}, {"logprobs": 2}]
)
def test_what_needs_the_last_token_waits_for_it(steps: AheadSteps, params: dict[str, object]) -> None:
    core, _ = make_core(steps=steps)
    run_all(core, [make_request("1", PROMPT, max_tokens=3, **params)])
    assert steps.told == [("begin", 0), ("wait", 0), ("begin", 1), ("wait", 1), ("begin", 2), ("wait", 2)]


def test_drafts_wait_too_and_running_ahead_goes_on_when_their_request_has_ended(steps: AheadSteps) -> None:
    core, _ = make_core(steps=steps, speculative_tokens=3)
    run_all(core, [make_request("1", PROMPT, max_tokens=12)])
    waits = [what for what, _ in steps.told]
    assert waits == ["begin", "wait"] * (len(waits) // 2)
    assert core.accepted_tokens > 0


def test_a_token_beyond_the_end_is_computed_and_dropped(steps: AheadSteps) -> None:
    core, kv_cache = make_core(steps=steps)
    end = ANSWER[4]
    request = make_request("1", PROMPT, max_tokens=20, stop_token_ids=frozenset({end}))
    core.add(request)
    deltas = finish(core)
    wanted = ANSWER[: ANSWER.index(end) + 1]
    assert request.output_token_ids == wanted
    assert [token for delta in deltas for token in delta.token_ids] == wanted
    assert [delta.finish_reason for delta in deltas if delta.finish_reason] == ["stop"]
    begun = sum(what == "begin" for what, _ in steps.told)
    assert begun == len(wanted) + 1
    assert kv_cache.pool.free_blocks == kv_cache.pool.total_blocks


def test_no_step_is_spent_on_an_answer_whose_length_is_known_to_be_reached(steps: AheadSteps) -> None:
    core, _ = make_core(steps=steps)
    run_all(core, [make_request("1", PROMPT, max_tokens=6)])
    assert sum(what == "begin" for what, _ in steps.told) == 6


def test_a_client_that_leaves_while_its_token_is_in_flight_costs_nobody_anything(steps: AheadSteps) -> None:
    core, kv_cache = make_core(steps=steps)
    leaving, staying = make_request("1", PROMPT, max_tokens=9), make_request("2", [7, 8], max_tokens=9)
    core.add(leaving)
    core.add(staying)
    core.step()
    core.step()
    core.cancel(leaving)
    finish(core)
    assert leaving.status is Status.FINISHED
    assert staying.output_token_ids == expected_answer([7, 8], 9)
    assert kv_cache.pool.free_blocks == kv_cache.pool.total_blocks


class FailingOnce(SlotRunner):
    """Fails in its third step."""

    calls = 0

    def run(self, batch: Batch) -> torch.Tensor:
        self.calls += 1
        if self.calls == 3:
            raise RuntimeError("out of memory")
        return super().run(batch)


def test_a_step_that_fails_ends_its_requests_and_the_engine_goes_on() -> None:
    steps = AheadSteps(FailingOnce(64, 4))
    core, kv_cache = make_core(steps=steps)
    lost, later = make_request("1", PROMPT, max_tokens=9), make_request("2", PROMPT, max_tokens=9)
    core.add(lost)
    deltas = finish(core)
    assert deltas[-1].error == "The step failed: out of memory"
    assert sum(delta.finish_reason is not None for delta in deltas) == 1
    run_all(core, [later])
    steps.close()
    assert later.output_token_ids == expected_answer(PROMPT, 9)
    assert kv_cache.pool.free_blocks == kv_cache.pool.total_blocks


params = st.fixed_dictionaries(
    {"max_tokens": st.integers(1, 10), "seed": st.integers(0, 3)},
    optional={
        "temperature": st.sampled_from([0.0, 1.0, 2.0]),
        "stop": st.sampled_from([("w3",), ("w1w", "w77")]),
        "stop_token_ids": st.sampled_from([frozenset({1, 2, 3}), frozenset(range(0, 97, 4))]),
        "min_tokens": st.integers(0, 4),
        "logprobs": st.just(1),
        "presence_penalty": st.just(2.0),
        "logit_bias": st.just({3: 9.5, 50: 9.0}),
    },
)


def transcript(core: EngineCore, requests: list[Request], stagger: int) -> list[tuple[str, list[int], str]]:
    """Each answer's text, tokens and finish reason."""
    texts = {request.request_id: "" for request in requests}
    waiting = list(requests)
    step = 0
    while waiting or core.has_work:
        if waiting and step % stagger == 0:
            core.add(waiting.pop(0))
        for delta in core.step().deltas:
            texts[delta.request.request_id] += delta.text
        step += 1
    return [(texts[r.request_id], r.output_token_ids, str(r.finish_reason)) for r in requests]


@settings(max_examples=70)
@given(
    drawn=st.lists(st.tuples(st.lists(st.integers(0, 9), min_size=1, max_size=14), params), min_size=1, max_size=5),
    block_size=st.sampled_from([1, 2, 4]),
    budget=st.integers(1, 16),
    spare=st.integers(0, 10),
    stagger=st.integers(1, 4),
)
def test_answers_are_the_same_with_and_without_running_ahead(
    drawn: list[tuple[list[int], dict[str, object]]], block_size: int, budget: int, spare: int, stagger: int
) -> None:
    blocks = -(-24 // block_size) + spare
    ahead = AheadSteps(SlotRunner(blocks, block_size))
    heard: list[list[tuple[str, list[int], str]]] = []
    for steps in (direct(SlotRunner(blocks, block_size)), ahead):
        core, kv_cache = make_core(blocks=blocks, block_size=block_size, budget=budget, steps=steps)
        requests = [make_request(str(i), list(prompt), **how) for i, (prompt, how) in enumerate(drawn)]
        heard.append(transcript(core, requests, stagger))
        assert kv_cache.pool.free_blocks == blocks
        assert all(request.in_flight_tokens == 0 or request.finish_reason == "stop" for request in requests)
    ahead.close()
    assert heard[0] == heard[1]
