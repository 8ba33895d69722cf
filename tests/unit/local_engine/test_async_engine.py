"""The step loop's thread under many clients that come and go: no wrong token, no lost block, correct health."""

import asyncio
import os
import random
import select
import signal
import socket
import threading
from contextlib import aclosing, suppress

import pytest
import torch
import uvicorn
from starlette.types import Receive, Scope, Send

from local_engine.async_engine import AsyncEngine
from local_engine.engine_core import Delta
from local_engine.errors import (
    ContextLengthExceeded,
    DeviceLost,
    EngineDraining,
    EngineError,
    InvalidRequest,
    QueueFull,
)
from local_engine.metrics import EngineMetrics
from local_engine.sampling.sampling_params import SamplingParams
from local_engine.scheduler import Batch
from local_engine.server.listening import bind
from local_engine.server.serving import QuietServer, beat, listen, stop_when_told
from tests.hand_clock import HandClock
from tests.unit.local_engine.scripted import AheadStep, AheadSteps, SlotRunner, expected_answer, make_core


def make_engine(
    *, clock: HandClock | None = None, runner: SlotRunner | None = None, steps: AheadSteps | None = None
) -> AsyncEngine:
    core, kv_cache = make_core(
        blocks=24,
        block_size=4,
        running=4,
        budget=12,
        speculative_tokens=0 if steps is not None else 3,
        runner=runner,
        steps=steps,
    )
    return AsyncEngine(
        core,
        kv_cache,
        EngineMetrics(),
        context_window=64,
        max_running_requests=4,
        max_waiting_requests=8,
        stall_seconds=5.0,
        clock=clock or HandClock(0.0),
    )


def greedy(tokens: int) -> SamplingParams:
    return SamplingParams(temperature=0.0, max_tokens=tokens)


async def collect(engine: AsyncEngine, prompt: list[int], tokens: int, leave_after: int | None = None) -> list[int]:
    """Runs one client, which may leave early."""
    admission = engine.admit(prompt)
    seen: list[int] = []
    try:
        async with aclosing(engine.generate(prompt, greedy(tokens))) as deltas:
            async for delta in deltas:
                seen += delta.token_ids
                if leave_after is not None and len(seen) >= leave_after:
                    break
    finally:
        admission.release()
    return seen


@pytest.mark.parametrize("runs_ahead", [False, True])
async def test_crowding_clients_with_random_leaving_get_right_tokens_and_leak_nothing(*, runs_ahead: bool) -> None:
    steps = AheadSteps(SlotRunner(24, 4)) if runs_ahead else None
    engine, draw = make_engine(steps=steps), random.Random(2)
    engine.start()

    async def client() -> None:
        for _ in range(25):
            prompt = [5, 4, 3, 2, 1, 0, 1, 2][: draw.randrange(9)] + [
                draw.randrange(9) for _ in range(draw.randrange(1, 30))
            ]
            tokens, leave = draw.randrange(1, 20), draw.choice([None, None, 1, 5])
            seen = await collect(engine, prompt, tokens, leave)
            assert seen == expected_answer(prompt, tokens)[: len(seen)]
            if leave is None:
                assert len(seen) == tokens

    await asyncio.gather(*(client() for _ in range(8)))
    while engine.state().running or engine.state().kv_blocks_free < 24:
        await asyncio.sleep(0)
    assert engine.state().waiting == 0
    assert engine.state().free_slots == 4
    await engine.stop()
    if steps is not None:
        steps.close()


async def test_what_was_drawn_and_whether_guesses_pay_is_told() -> None:
    engine = make_engine()
    engine.start()
    prompt = [5, 4, 3, 2, 1, 0]
    for _ in range(2):
        await collect(engine, prompt, 40)
    await engine.stop()
    told = {
        line.split()[0]: float(line.split()[1])
        for line in engine.metrics.render().decode().splitlines()
        if "tokens_total" in line and not line.startswith("#")
    }
    drafted, accepted = (
        told["breakeven_engine_draft_tokens_total"],
        told["breakeven_engine_accepted_draft_tokens_total"],
    )
    assert 0 < accepted <= drafted < 2 * 40 * 3
    assert told["breakeven_engine_output_tokens_total"] == 2 * 40, "the first of each answer too, and no wrong guess"


async def test_a_full_engine_refuses_and_says_when_to_come_back() -> None:
    engine = make_engine()
    admissions = [engine.admit([1]) for _ in range(12)]
    with pytest.raises(QueueFull) as caught:
        engine.admit([1])
    assert caught.value.retry_after_seconds >= 1
    admissions[0].release()
    admissions[0].release()
    engine.admit([1])
    with pytest.raises(QueueFull):
        engine.admit([1])


async def test_in_a_burst_who_comes_late_hears_how_long_the_first_have_waited() -> None:
    """No finished request shows yet how long a slot takes: it used to say one second, however long that lasted."""
    clock = HandClock(0.0)
    engine = make_engine(clock=clock)  # whose steps are not started: all wait
    waiting = [asyncio.create_task(collect(engine, [1], 1)) for _ in range(12)]
    await asyncio.sleep(0)
    clock.now = 7.0
    with pytest.raises(QueueFull) as caught:
        engine.admit([1])
    assert caught.value.retry_after_seconds == 7.0
    for one in waiting:
        one.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_who_comes_hears_nothing_of_less_important_waits() -> None:
    """One unimportant answer waited for 100 s, and a gateway avoided a queue of 6 s for that long."""
    clock = HandClock(0.0)
    engine = make_engine(clock=clock)  # whose steps are not started: all wait

    async def unimportant() -> list[Delta]:
        return [delta async for delta in engine.generate([1], SamplingParams(), priority=5)]

    starved = asyncio.create_task(unimportant())
    await asyncio.sleep(0)
    clock.now = 94.0
    waiting = [asyncio.create_task(collect(engine, [1], 1)) for _ in range(11)]
    await asyncio.sleep(0)
    clock.now = 100.0
    for priority, seconds in ((0, 6.0), (5, 100.0)):
        with pytest.raises(QueueFull) as caught:
            engine.admit([1], 2, priority=priority)
        assert caught.value.retry_after_seconds == seconds
    for one in (starved, *waiting):
        one.cancel()
    await asyncio.gather(starved, *waiting, return_exceptions=True)


async def test_a_full_engine_takes_places_from_the_least_important_and_youngest() -> None:
    engine = make_engine()
    first, second, least = (engine.admit([1], 3, priority=priority) for priority in (1, 1, 2))
    equal = engine.admit([1], 3)
    engine.admit([1], 2)
    engine.admit([1], 2)
    assert [one.displaced.is_set() for one in (first, second, least, equal)] == [False, True, True, False]
    with pytest.raises(QueueFull, match="holds 10"):
        engine.admit([1], 6)
    assert not first.displaced.is_set(), "its three places are too few"
    second.release()
    engine.admit([1], 2)
    assert not first.displaced.is_set()


async def test_who_has_waited_its_seconds_keeps_its_place() -> None:
    clock = HandClock(0.0)
    engine = make_engine(clock=clock)
    waiting = engine.admit([1], 12, priority=1)
    clock.now = 30.0
    with pytest.raises(QueueFull):
        engine.admit([1])
    clock.now = 29.9
    engine.admit([1])
    assert waiting.displaced.is_set()


async def test_who_has_begun_keeps_its_place() -> None:
    engine = make_engine()
    engine.start()
    admission = engine.admit([1], 12, priority=9)
    async with aclosing(admission.generate([1], greedy(20), cache_salt="")) as deltas:
        await anext(deltas)
        with pytest.raises(QueueFull):
            engine.admit([1])
    assert not admission.displaced.is_set()
    await engine.stop()


def test_prompts_that_cannot_run_are_refused() -> None:
    engine = make_engine()
    with pytest.raises(ContextLengthExceeded, match="prompt is too long for this model's 64 tokens: it has 64"):
        engine.admit([1] * 64)
    with pytest.raises(InvalidRequest):
        engine.admit([])


async def test_a_draining_engine_finishes_and_takes_nothing_new() -> None:
    engine = make_engine()
    engine.start()
    running = asyncio.create_task(collect(engine, [1, 2, 3], 20))
    await asyncio.sleep(0)
    assert await engine.drain(30)
    assert len(await running) == 20
    assert engine.state().status == "draining"
    with pytest.raises(EngineDraining):
        engine.admit([1])
    await engine.stop()


class StuckRunner(SlotRunner):
    """A device that hangs until it is released."""

    def __init__(self) -> None:
        super().__init__(24, 4)
        self.entered, self.let_go = threading.Event(), threading.Event()

    def run(self, batch: Batch) -> torch.Tensor:
        self.entered.set()
        self.let_go.wait()
        return super().run(batch)


async def test_health_goes_red_while_a_step_hangs_and_green_again_after() -> None:
    clock, runner = HandClock(0.0), StuckRunner()
    engine = make_engine(clock=clock, runner=runner)
    engine.start()
    client = asyncio.create_task(collect(engine, [1, 2], 3))
    await asyncio.to_thread(runner.entered.wait)
    assert engine.state().status == "ok"
    clock.now = 6.0
    assert engine.state().status == "stalled"
    runner.let_go.set()
    assert await client == expected_answer([1, 2], 3)
    while engine.state().status != "ok":
        await asyncio.sleep(0)
    await engine.stop()


async def test_whoever_started_it_hears_that_a_step_hangs_for_good() -> None:
    clock, runner = HandClock(0.0), StuckRunner()
    engine = make_engine(clock=clock, runner=runner)
    engine.start()
    client = asyncio.create_task(collect(engine, [1, 2], 3))
    await asyncio.to_thread(runner.entered.wait)
    heard, ours = os.pipe()
    os.set_blocking(heard, False)
    beating = asyncio.create_task(beat(ours, engine, every_seconds=0))
    for seconds, is_beating in ((6.0, True), (51.0, False)):  # a step may be long on a slow machine
        clock.now = seconds
        with suppress(BlockingIOError):
            os.read(heard, 65_536)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert bool(readable(heard)) is is_beating
    beating.cancel()
    runner.let_go.set()
    await client
    await engine.stop()
    os.close(heard)
    os.close(ours)


def readable(descriptor: int) -> list[int]:
    return select.select([descriptor], [], [], 0)[0]


class FailingRunner(SlotRunner):
    """A device that fails once."""

    has_failed = False

    def run(self, batch: Batch) -> torch.Tensor:
        if not self.has_failed:
            self.has_failed = True
            raise RuntimeError("out of memory")
        return super().run(batch)


async def test_a_failed_step_ends_its_requests_and_the_engine_goes_on() -> None:
    engine = make_engine(runner=FailingRunner(24, 4))
    engine.start()
    deltas = [delta async for delta in engine.generate([1, 2], greedy(3))]
    assert deltas[-1].finish_reason == "error"
    assert "out of memory" in (deltas[-1].error or "")
    assert await collect(engine, [1, 2], 3) == expected_answer([1, 2], 3)
    assert engine.state().kv_blocks_free == 24
    await engine.stop()


class LostSteps(AheadSteps):
    """A device that faults and then rejects everything."""

    def begin(self, batch: Batch) -> AheadStep:
        raise RuntimeError("an illegal memory access was encountered")

    def check(self) -> None:
        raise DeviceLost("cuda no longer works; restart the engine.")


async def test_a_lost_device_ends_the_loop_and_tells_everybody() -> None:
    steps = LostSteps(SlotRunner(24, 4))
    engine = make_engine(steps=steps)
    engine.start()
    deltas = [delta async for delta in engine.generate([1, 2], greedy(3))]
    assert deltas[-1].error == "The engine's step loop died."
    late = [delta async for delta in engine.generate([1, 2], greedy(3))]
    assert late[-1].error == "The engine's step loop died.", "a second choice begins when the first one has ended"
    assert engine.has_died
    with pytest.raises(EngineDraining):
        engine.admit([1])
    await engine.stop()
    assert engine.state().status == "stalled"
    steps.close()


async def test_a_server_whose_loop_died_stops_by_itself() -> None:
    """A process that can compute nothing must end, since only ended processes are restarted."""
    steps = LostSteps(SlotRunner(24, 4))
    engine = make_engine(steps=steps)
    engine.start()
    watched = uvicorn.Server(uvicorn.Config(lambda: None, log_config=None))
    watcher = asyncio.create_task(stop_when_told(watched, engine, 30, None))
    await collect(engine, [1, 2], 3)
    await watcher
    assert watched.should_exit
    assert not watched.force_exit, "whoever waited was told"
    await engine.stop()
    steps.close()


async def test_who_is_cut_off_by_the_drain_limit_is_told() -> None:
    runner = StuckRunner()
    engine = make_engine(runner=runner)
    engine.start()

    async def told() -> Delta:
        admission = engine.admit([1, 2])
        deltas = [delta async for delta in engine.generate([1, 2], greedy(3))]
        admission.release()
        return deltas[-1]

    client = asyncio.create_task(told())
    await asyncio.to_thread(runner.entered.wait)
    watched = uvicorn.Server(uvicorn.Config(lambda: None, log_config=None))
    watcher = asyncio.create_task(stop_when_told(watched, engine, 0, None))
    await asyncio.sleep(0)
    os.kill(os.getpid(), signal.SIGTERM)
    await watcher
    last = await client
    assert (last.error, last.is_abandoned) == ("The engine was stopped before this answer was finished.", True)
    assert watched.should_exit
    assert not watched.force_exit, "cut off, it would answer in no shape that clients read"
    runner.let_go.set()
    await engine.stop()


async def test_who_cannot_be_told_keeps_no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """On any Python version, though its connection is open and its answer never ends."""
    monkeypatch.setattr("local_engine.server.serving.TELLING_SECONDS", 0)
    begun = asyncio.Event()

    async def endless(scope: Scope, receive: Receive, send: Send) -> None:
        begun.set()
        await asyncio.Event().wait()

    engine = make_engine(runner=StuckRunner())
    engine.admit([1, 2])
    with socket.create_server(("127.0.0.1", 0)) as listener:
        served = QuietServer(uvicorn.Config(endless, log_config=None, lifespan="off"))
        watcher = asyncio.create_task(stop_when_told(served, engine, 0, None))
        serving = asyncio.create_task(served.serve(sockets=[listener]))
        _, writer = await asyncio.open_connection(*listener.getsockname())
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        await begun.wait()
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(serving, 300)
        await watcher
        writer.close()


def test_of_two_servers_that_bound_one_port_the_second_is_told() -> None:
    """While both load, both have it; the second said that it served, and ended with a traceback."""
    first = bind("127.0.0.1", 0)
    port = first.getsockname()[1]
    second = bind("127.0.0.1", port)
    listen(first)
    with pytest.raises(EngineError, match=rf"Cannot listen on 127\.0\.0\.1:{port}"):
        listen(second)
    first.close()
