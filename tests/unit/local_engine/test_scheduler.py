"""Scheduler, KV-cache manager and step loop with a scripted model: every configuration gives the same answers."""

from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from local_engine.engine_core import EngineCore
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

prompts = st.lists(
    st.tuples(st.integers(0, 2), st.lists(st.integers(0, 9), min_size=1, max_size=12)), min_size=1, max_size=6
)
PREFIXES = ([], [5, 4, 3, 2, 1, 0, 1, 2], [5, 4, 3, 2, 9, 9, 9, 9, 9, 9, 9])


@settings(max_examples=90)
@given(
    raw=prompts,
    block_size=st.sampled_from([1, 2, 3, 4, 8]),
    running=st.integers(1, 4),
    budget=st.integers(1, 24),
    spare=st.integers(0, 12),
    stagger=st.integers(1, 5),
    has_prefix_cache=st.booleans(),
    speculative_tokens=st.sampled_from([0, 0, 3]),
    runs_ahead=st.booleans(),
    has_priorities=st.booleans(),
)
def test_every_configuration_gives_the_same_answers_and_gives_all_blocks_back(
    raw: list[tuple[int, list[int]]],
    block_size: int,
    running: int,
    budget: int,
    spare: int,
    stagger: int,
    has_prefix_cache: bool,
    speculative_tokens: int,
    runs_ahead: bool,
    has_priorities: bool,
) -> None:
    requests = [make_request(str(i), [*PREFIXES[p], *tail]) for i, (p, tail) in enumerate(raw)]
    for request in requests if has_priorities else []:
        request.priority = sum(request.prompt_token_ids) % 3
    longest = max(request.prompt_tokens for request in requests) + 8
    # Just enough for the longest request alone, so that the others are preempted and resumed.
    blocks = -(-longest // block_size) + spare
    runner = SlotRunner(blocks, block_size)
    steps = AheadSteps(runner) if runs_ahead else direct(runner)
    core, kv_cache = make_core(
        blocks=blocks,
        block_size=block_size,
        running=running,
        budget=budget,
        has_prefix_cache=has_prefix_cache,
        speculative_tokens=speculative_tokens,
        steps=steps,
    )
    run_all(core, requests, stagger=stagger)
    if isinstance(steps, AheadSteps):
        steps.close()
    for request in requests:
        assert request.finish_reason == "length"
        assert request.output_token_ids == expected_answer(request.prompt_token_ids, 8)
    assert kv_cache.pool.free_blocks == kv_cache.pool.total_blocks
    assert all(kv_cache.pool.references(block) == 0 for block in range(blocks))


def test_preemption_happens_and_is_resumed_from_the_cached_prefix() -> None:
    core, kv_cache = make_core(blocks=6, block_size=4, budget=32)
    requests = [make_request(str(i), [i] * 9, max_tokens=12) for i in range(2)]
    run_all(core, requests)
    assert core.scheduler.preemptions > 0
    assert [r.output_token_ids for r in requests] == [expected_answer(r.prompt_token_ids, 12) for r in requests]
    assert kv_cache.pool.free_blocks == 6


def test_a_second_equal_prompt_starts_from_the_first_ones_blocks() -> None:
    core, _ = make_core(block_size=4)
    first, second = make_request("1", list(range(11))), make_request("2", list(range(11)))
    run_all(core, [first])
    run_all(core, [second])
    assert first.cached_prompt_tokens == 0
    assert second.cached_prompt_tokens == 8


def test_equal_prompts_that_come_together_are_computed_once() -> None:
    """Like the answers of one request with `n`; requests that share nothing with them do not wait."""
    core, _ = make_core(block_size=4, budget=200, running=8)
    shared, other = list(range(42)), [50] * 42
    for name in range(6):
        core.add(make_request(f"shared {name}", list(shared), max_tokens=1))
    core.add(make_request("other", other, max_tokens=1))
    computed: list[int] = []
    while core.has_work:
        computed.append(core.step().prefill_tokens)
    assert computed == [84, 5 * 2]


def test_a_whole_cached_prompt_still_computes_its_last_token() -> None:
    core, _ = make_core(block_size=4)
    run_all(core, [make_request("1", list(range(8)))])
    again = make_request("2", list(range(8)))
    run_all(core, [again])
    assert again.cached_prompt_tokens == 4
    assert again.output_token_ids == expected_answer(list(range(8)), 8)


def test_another_salt_never_finds_the_prefix() -> None:
    core, _ = make_core(block_size=4)
    first = make_request("1", list(range(12)))
    first.cache_salt = "tenant-a"
    other = make_request("2", list(range(12)))
    other.cache_salt = "tenant-b"
    run_all(core, [first])
    run_all(core, [other])
    assert other.cached_prompt_tokens == 0


def test_a_decode_is_never_starved_by_a_long_prompt_beside_it() -> None:
    core, _ = make_core(budget=4, block_size=4)
    long, short = make_request("long", [1] * 60), make_request("short", [2], max_tokens=6)
    core.add(short)
    core.step()
    core.add(long)
    for _ in range(5):
        core.step()
    assert short.status is Status.FINISHED
    assert long.output_tokens == 0


def steps_to_first_token(core: EngineCore, request: Request) -> int:
    """The number of steps from now until its first token."""
    for number in range(1, 10_000):
        core.step()
        if request.output_tokens:
            return number
    raise AssertionError("it never has one")


def test_a_short_prompt_does_not_wait_behind_long_ones() -> None:
    """It used to wait behind all four, for a hundred steps."""
    core, _ = make_core(budget=4, blocks=200, running=8)
    for name in range(4):
        core.add(make_request(f"long {name}", [name] * 100, max_tokens=1))
    for _ in range(3):
        core.step()
    short = make_request("short", [7, 8, 9], max_tokens=1)
    core.add(short)
    assert steps_to_first_token(core, short) == 2


def test_what_is_cached_of_a_prompt_does_not_make_it_long() -> None:
    core, _ = make_core(budget=4, blocks=200, has_prefix_cache=True)
    said = [8] * 60
    run_all(core, [make_request("before", said, max_tokens=1)])
    core.add(make_request("long", [1] * 50, max_tokens=1))
    core.step()
    again = make_request("again", [*said, 9], max_tokens=1)
    core.add(again)
    assert steps_to_first_token(core, again) == 1


def test_short_prompts_take_at_most_half_from_the_first_and_nothing_of_a_step_is_lost() -> None:
    core, _ = make_core(budget=4, blocks=200, running=8)
    long = make_request("long", [1] * 100, max_tokens=1)
    core.add(long)
    computed: list[int] = []
    for number in range(50):
        core.add(make_request(f"short {number}", [number, 3], max_tokens=1))
        computed.append(core.step().prefill_tokens)
    assert long.status is Status.FINISHED
    assert computed == [4] * 50


def test_an_important_prompt_goes_before_an_unimportant_one_under_way() -> None:
    core, _ = make_core(budget=4, blocks=200)
    unimportant, important = make_request("later", [1] * 60), make_request("now", [2] * 12)
    unimportant.priority = 1
    core.add(unimportant)
    core.step()
    core.add(important)
    assert steps_to_first_token(core, important) == 3
    assert unimportant.computed_tokens == 4


def test_an_important_request_takes_the_place_of_an_unimportant_one_which_goes_on_later() -> None:
    """It used to wait until one of them had ended."""
    core, kv_cache = make_core(running=2)
    unimportant = [make_request(str(i), [i] * 6, max_tokens=40) for i in range(2)]
    for request in unimportant:
        request.priority = 1
        core.add(request)
    for _ in range(5):
        core.step()
    important = make_request("now", [9] * 6, max_tokens=3)
    core.add(important)
    assert steps_to_first_token(core, important) == 1
    assert [one.status for one in unimportant] == [Status.RUNNING, Status.WAITING]
    run_all(core, [])
    assert [one.output_token_ids for one in unimportant] == [expected_answer([i] * 6, 40) for i in range(2)]
    assert core.scheduler.preemptions == 1
    assert kv_cache.pool.free_blocks == kv_cache.pool.total_blocks


def test_important_requests_without_end_delay_an_unimportant_one_by_its_seconds_only() -> None:
    """It used to never begin, and once it had, the next important one preempted it."""
    core, _ = make_core(running=1)
    unimportant = make_request("later", [1] * 6, max_tokens=8)
    unimportant.priority = 2
    core.add(unimportant)
    begun: list[int] = []
    for second in range(1, 90):
        important = make_request(str(second), [second] * 6, max_tokens=1)
        important.timings.arrived = float(second)
        core.add(important)
        core.step()
        begun += [second] * (unimportant.status is Status.RUNNING)
    assert begun == list(range(60, 67))
    assert unimportant.status is Status.FINISHED


def test_an_important_request_takes_the_blocks_of_an_unimportant_one() -> None:
    core, _ = make_core(blocks=8, block_size=4, budget=32)
    unimportant, important = make_request("later", [1] * 20, max_tokens=8), make_request("now", [2] * 14, max_tokens=2)
    unimportant.priority = 1
    core.add(unimportant)
    for _ in range(3):
        core.step()
    core.add(important)
    assert steps_to_first_token(core, important) == 1
    equal = make_request("equal", [3] * 22, max_tokens=2)
    core.add(equal)
    core.step()
    assert equal.output_tokens == 0, "equals wait for one another"
    run_all(core, [])
    assert unimportant.output_token_ids == expected_answer([1] * 20, 8)


def test_the_budget_bounds_every_step() -> None:
    computed: list[int] = []

    class Counting(SlotRunner):
        def run(self, batch: Batch) -> Tensor:
            computed.append(batch.tokens)
            return super().run(batch)

    core, _ = make_core(budget=5, runner=Counting(64, 4))
    run_all(core, [make_request(str(i), [i] * 13) for i in range(4)])
    assert max(computed) == 5


def test_importance_goes_before_arrival() -> None:
    core, _ = make_core(running=1)
    plain, urgent = make_request("plain", [1]), make_request("urgent", [2])
    urgent.priority = -1
    core.add(plain)
    core.add(urgent)
    core.step()
    assert urgent.status is Status.RUNNING
    assert plain.status is Status.WAITING


def test_a_request_larger_than_the_pool_fails_alone() -> None:
    core, kv_cache = make_core(blocks=3, block_size=4)
    huge, small = make_request("huge", [1] * 20), make_request("small", [2] * 3, max_tokens=2)
    run_all(core, [huge, small])
    assert huge.finish_reason == "error"
    assert small.output_token_ids == expected_answer([2] * 3, 2)
    assert kv_cache.pool.free_blocks == 3


def test_a_cancelled_request_gives_its_blocks_back_at_once() -> None:
    core, kv_cache = make_core()
    requests = [make_request(str(i), [i] * 9) for i in range(6)]
    for request in requests:
        core.add(request)
    core.step()
    assert kv_cache.pool.free_blocks < kv_cache.pool.total_blocks
    for request in requests:
        core.cancel(request)
        core.cancel(request)
    assert kv_cache.pool.free_blocks == kv_cache.pool.total_blocks
    assert not core.has_work


def test_aligned_chunks_end_on_aligned_positions() -> None:
    core, _ = make_core(budget=8, alignment=4)
    request = make_request("1", [3] * 11, max_tokens=3)
    core.add(request)
    ends: list[int] = []
    while core.has_work:
        core.step()
        ends.append(request.computed_tokens)
    assert ends[:3] == [4, 8, 11]
    assert request.output_token_ids == expected_answer([3] * 11, 3)
