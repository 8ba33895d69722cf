"""What is stored of a batch while the database is down or after another worker took it; the rest is in
tests/integration."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from typing import Any

import msgspec
import pytest

from gateway.batches.lines import Line, answered, expired
from gateway.batches.run import BatchRun
from gateway.batches.values import Batch, FileReader, LineResult, Progress
from gateway.errors import DatabaseDown, NotFound
from tests.unit.gateway.batches.builders import CHATS, MemoryBatches, MemoryFiles, make_batch

COUNT = 30


def content() -> bytes:
    return b"\n".join(
        json.dumps({"custom_id": f"{n}", "method": "POST", "url": CHATS, "body": {"model": "auto"}}).encode()
        for n in range(COUNT)
    )


Ask = Callable[[Batch, Line], Coroutine[Any, Any, LineResult]]


def open_run(
    store: MemoryBatches, asked: list[int], waits: Ask | None = None, files: FileReader | None = None, **changes: object
) -> BatchRun:
    """If `waits` is given, lines wait in it and are never asked."""

    async def ask(batch: Batch, line: Line) -> LineResult:
        asked.append(line.number)
        await asyncio.sleep(0)
        return answered(line, 200, "0", b"{}", cost_pico_usd=3)

    async def briefly(seconds: float) -> None:
        await asyncio.sleep(seconds / 1000)

    return BatchRun(
        make_batch(**changes),
        files or MemoryFiles(content()),
        store,
        runner="me",
        ask=waits or ask,
        is_asking=lambda task: waits is None,
        awaits=lambda batch, line: False,
        now_us=lambda: 0,
        monotonic=lambda: 0.0,
        most_at_once=4,
        most_lines=COUNT,
        most_line_bytes=1000,
        sleep=briefly,
    )


class Away(MemoryBatches):
    """Every other call fails as the database is down; its results are not stored."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    async def save(self, batch: Batch, results: Sequence[LineResult], *, runner: str, seconds: float) -> Batch | None:
        self.calls += 1
        await asyncio.sleep(0.001)
        if self.calls % 2:
            raise DatabaseDown("it is away")
        return await super().save(batch, results, runner=runner, seconds=seconds)


async def test_while_the_database_is_away_nothing_is_lost_or_asked_twice() -> None:
    store, asked = Away(), list[int]()
    await open_run(store, asked).run()
    assert (store.saved.status, sorted(store.results)) == ("completed", list(range(1, COUNT + 1)))
    assert sorted(asked) == list(range(1, COUNT + 1))
    said = store.saved.progress
    assert (said.total, said.completed, said.cost_pico_usd) == (COUNT, COUNT, 3 * COUNT)
    assert said.output_bytes == sum(len(one.text) for one in store.results.values())


class Unread(Away):
    """At first cannot tell which lines are done."""

    def __init__(self) -> None:
        super().__init__()
        self.looks = 0

    async def done_lines(self, batch: Batch) -> set[int]:
        self.looks += 1
        if self.looks == 1:
            raise DatabaseDown("it is away")
        return await super().done_lines(batch)


class AwayFiles(MemoryFiles):
    """Fails one part later each time."""

    reads = 0

    async def read(self, file_id: str) -> AsyncGenerator[bytes]:
        self.reads += 1
        given = 0
        async for part in super().read(file_id):
            given += 1
            if given == self.reads:
                raise DatabaseDown("it is away")
            yield part


async def test_a_file_is_read_again_where_the_database_was_away() -> None:
    store, asked, files = Unread(), list[int](), AwayFiles(content())
    await open_run(store, asked, files=files).run()
    assert (store.saved.status, sorted(store.results)) == ("completed", list(range(1, COUNT + 1)))
    assert sorted(asked) == list(range(1, COUNT + 1))
    assert (files.reads > 2, store.looks) == (True, 2)


class GoneFiles(MemoryFiles):
    """The file is deleted while it is read for the second time."""

    reads = 0

    async def read(self, file_id: str) -> AsyncGenerator[bytes]:
        self.reads += 1
        async for part in super().read(file_id):
            yield part
            if self.reads == 2:
                raise NotFound("it is not kept any more")


async def test_a_batch_whose_file_is_gone_ends_and_says_so() -> None:
    """Answers received before are kept."""
    store, asked = MemoryBatches(), list[int]()
    await open_run(store, asked, files=GoneFiles(content())).run()
    [problem] = store.saved.problems
    assert (store.saved.status, problem.code) == ("failed", "file_not_found")
    assert problem.message == "it is not kept any more"
    assert sorted(store.results) == sorted(asked) == [1]


class Others(MemoryBatches):
    """Another runner takes the batch at the second save."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    async def save(self, batch: Batch, results: Sequence[LineResult], *, runner: str, seconds: float) -> Batch | None:
        self.calls += 1
        return None if self.calls > 1 else await super().save(batch, results, runner=runner, seconds=seconds)


async def test_whoever_lost_it_stores_no_more(caplog: pytest.LogCaptureFixture) -> None:
    store = Others()
    await open_run(store, []).run()
    assert store.calls == 2
    assert store.saved.status != "completed"
    assert "batch_1 was taken over" in caplog.text


async def test_wound_down_it_stores_what_it_has_and_says_no_end() -> None:
    store, asked = MemoryBatches(), list[int]()
    run = open_run(store, asked)
    task = asyncio.create_task(run.run())
    while len(asked) < 8:
        await asyncio.sleep(0)
    run.wind_down()
    await task
    assert store.saved.status == "in_progress"
    assert sorted(store.results) == sorted(asked)
    assert len(asked) < COUNT


async def test_cancelled_it_stores_what_it_has() -> None:
    store, asked = MemoryBatches(), list[int]()
    task = asyncio.create_task(open_run(store, asked).run())
    while len(asked) < 8:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert set(store.results) <= set(asked)
    assert len(store.results) >= 4


async def test_what_has_results_is_not_asked() -> None:
    store, asked = MemoryBatches(), list[int]()
    store.results = {1: answered(Line(1, "0", b""), 200, "0", b"{}", cost_pico_usd=None)}
    await open_run(store, asked, status="in_progress", progress=Progress(COUNT, 1)).run()
    assert sorted(asked) == list(range(2, COUNT + 1))


async def test_where_a_runner_before_let_lines_expire_the_batch_is_expired() -> None:
    """The previous runner died between the last result and the end."""
    store = MemoryBatches()
    store.results = {n: expired(Line(n, f"{n}", b"")) for n in range(1, COUNT + 1)}
    said = Progress(COUNT, failed=COUNT, expired=COUNT)
    await open_run(store, [], status="in_progress", progress=said).run()
    assert (store.saved.status, store.saved.progress) == ("expired", said)


class Cancelling(MemoryBatches):
    """The batch is cancelled once it is in progress."""

    async def save(self, batch: Batch, results: Sequence[LineResult], *, runner: str, seconds: float) -> Batch | None:
        now = await super().save(batch, results, runner=runner, seconds=seconds)
        if now is not None and now.status == "in_progress" and not results:
            return msgspec.structs.replace(now, status="cancelling")
        return now


@pytest.mark.parametrize(
    ("store", "is_stopped", "ends"),
    [
        (Cancelling(), False, "cancelled"),
        (MemoryBatches(), True, "in_progress"),
    ],
)
async def test_lines_that_wait_to_be_asked_again_do_not_hold_up_the_end(
    store: MemoryBatches, is_stopped: bool, ends: str
) -> None:
    """Their model may be down for days."""
    waiting = 0

    async def wait(batch: Batch, line: Line) -> LineResult:
        nonlocal waiting
        waiting += 1
        await asyncio.Event().wait()
        raise AssertionError

    store.saved = make_batch(status="in_progress")
    run = open_run(store, [], wait, status="in_progress", progress=Progress(COUNT))
    task = asyncio.create_task(run.run())
    async with asyncio.timeout(300):
        while waiting < 4:
            await asyncio.sleep(0)
        if is_stopped:
            run.wind_down()
        await task
    assert (store.saved.status, waiting) == (ends, 4)


class Slow(MemoryBatches):
    """Each save takes a while; records interrupted ones."""

    broken_off = 0

    async def save(self, batch: Batch, results: Sequence[LineResult], *, runner: str, seconds: float) -> Batch | None:
        try:
            await asyncio.sleep(0.05)
        except asyncio.CancelledError:
            self.broken_off += 1
            raise
        return await super().save(batch, results, runner=runner, seconds=seconds)


async def test_no_save_is_broken_off_by_the_end_of_a_run() -> None:
    """An interrupted transaction keeps SQLite locked for the next one."""
    store, asked = Slow(), list[int]()
    run = open_run(store, asked, status="in_progress", progress=Progress(COUNT))
    task = asyncio.create_task(run.run())
    while len(asked) < 8:
        await asyncio.sleep(0)
    await asyncio.sleep(0.01)
    run.wind_down()
    await task
    assert (store.broken_off, sorted(store.results)) == (0, sorted(asked))


class Ending(MemoryBatches):
    """The run is cancelled while its end is stored."""

    task: asyncio.Task[None] | None = None

    async def save(self, batch: Batch, results: Sequence[LineResult], *, runner: str, seconds: float) -> Batch | None:
        saved = await super().save(batch, results, runner=runner, seconds=seconds)
        if batch.status == "completed":
            assert self.task is not None
            self.task.cancel()
            await asyncio.sleep(0.01)
        return saved


async def test_a_batch_that_ended_as_its_run_was_cancelled_stays_ended() -> None:
    """It was stored once more, as one that is in progress."""
    store = Ending()
    store.task = asyncio.create_task(open_run(store, [], status="in_progress", progress=Progress(COUNT)).run())
    await asyncio.wait((store.task,))
    assert (store.saved.status, store.saved.progress.completed) == ("completed", COUNT)
