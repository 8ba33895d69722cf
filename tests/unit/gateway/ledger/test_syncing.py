"""Both syncers fulfil the same contract, and the thread of C++ what is asked of it."""

import asyncio
import errno
import os
import random
import select
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from gateway.ledger.disk import DiskFile, LocalDisk, LocalFile
from gateway.ledger.native import native_thread
from gateway.ledger.native.native_thread import NativeThread, why_no_native_thread
from gateway.ledger.syncing import QueueSyncer, Syncer, ThreadSyncer, choose_syncer
from tests.faults.ledger.power_loss import SteppedQueue
from tests.simulated_disk import SimulatedDisk, SimulatedFile

PAGE = 4096


class ImmediateQueue(SteppedQueue):
    """Completes every sync immediately."""

    def submit(self, file: DiskFile) -> None:
        super().submit(file)
        self.step()


class UnwillingQueue(SteppedQueue):
    def submit(self, file: DiskFile) -> None:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))


SYNCERS: dict[str, Callable[[], Syncer]] = {
    "python": ThreadSyncer,
    "native": lambda: QueueSyncer(ImmediateQueue()),
}


@pytest.fixture(params=SYNCERS)
async def syncer(request: pytest.FixtureRequest) -> AsyncIterator[Syncer]:
    made = SYNCERS[request.param]()
    yield made
    await made.aclose()


@pytest.fixture
def thread() -> Iterator[NativeThread]:
    if why := why_no_native_thread():
        pytest.skip(f"no thread of C++ syncs here: {why}")
    thread = NativeThread()
    yield thread
    thread.close()


@pytest.fixture
def file(tmp_path: Path) -> Iterator[DiskFile]:
    disk = LocalDisk(tmp_path)
    disk.create("1.seg", PAGE, is_urgent=lambda: True)
    file = disk.open("1.seg")
    yield file
    file.close()


def make_files(disk: SimulatedDisk, count: int) -> list[SimulatedFile]:
    for number in range(count):
        disk.create(f"{number}.seg", PAGE, is_urgent=lambda: True)
    files = [disk.open(f"{number}.seg") for number in range(count)]
    for file in files:
        file.write(0, b"x")
    return files


async def synced(syncer: Syncer, files: list[DiskFile]) -> OSError | None:
    told: asyncio.Future[OSError | None] = asyncio.get_running_loop().create_future()
    syncer.start(files, told.set_result)  # a second call would raise
    return await told


async def test_every_file_of_a_group_is_synced_and_the_next_group_can_begin(syncer: Syncer) -> None:
    files = make_files(SimulatedDisk(random.Random(1)), 3)
    assert await synced(syncer, [files[0], files[1]]) is None
    assert [bool(file.pending) for file in files] == [False, False, True]
    assert await synced(syncer, []) is None
    assert await synced(syncer, [files[2]]) is None
    assert not files[2].pending


async def test_nothing_is_synced_after_an_error(syncer: Syncer) -> None:
    disk = SimulatedDisk(random.Random(1))
    files = make_files(disk, 3)
    disk.fail_sync_at = 2
    error = await synced(syncer, [*files])
    assert error is not None
    assert error.errno == errno.EIO
    assert disk.syncs == 2
    assert files[2].pending


async def test_a_sync_that_cannot_begin_has_failed() -> None:
    syncer = QueueSyncer(UnwillingQueue())
    error = await synced(syncer, [*make_files(SimulatedDisk(random.Random(1)), 1)])
    assert error is not None
    assert error.errno == errno.EAGAIN
    await syncer.aclose()


async def test_a_ring_without_an_end_is_no_end() -> None:
    queue = SteppedQueue()
    syncer = QueueSyncer(queue)
    told: list[OSError | None] = []
    syncer.start([*make_files(SimulatedDisk(random.Random(1)), 1)], told.append)
    for _ in range(4):
        await asyncio.sleep(0)
    assert told == []
    assert not queue.take()
    queue.step()
    while not told:
        await asyncio.sleep(0)
    assert told == [None]
    await syncer.aclose()


def ended(thread: NativeThread) -> bool:
    """Whether a sync has ended, once the bell rang."""
    bell = select.poll()
    bell.register(thread.fileno(), select.POLLIN)
    bell.poll()
    return thread.take()


def test_the_thread_tells_of_each_end(thread: NativeThread, file: DiskFile) -> None:
    for _ in range(3):
        file.write(0, b"x")
        assert not thread.take()
        thread.submit(file)
        assert ended(thread)
    assert not thread.take()


def test_what_the_disk_answers_is_raised(thread: NativeThread, file: DiskFile) -> None:
    nothing = LocalFile(Path("/dev/null"))
    thread.submit(nothing)
    with pytest.raises(OSError, match="Invalid argument"):
        ended(thread)
    nothing.close()
    thread.submit(file)
    assert ended(thread)


def test_a_loop_that_is_gone_does_not_keep_the_thread_from_ending(thread: NativeThread, file: DiskFile) -> None:
    async def begin() -> None:
        QueueSyncer(thread).start([file], lambda error: None)

    asyncio.run(begin())


def test_signals_are_left_to_the_interpreter() -> None:
    tasks = Path("/proc/self/task")
    before = {task.name for task in tasks.iterdir()}
    if why := why_no_native_thread():
        pytest.skip(f"no thread of C++ syncs here: {why}")
    thread = NativeThread()
    started = {task.name for task in tasks.iterdir()} - before
    statuses = [(tasks / own / "status").read_text(encoding="ascii") for own in started]
    thread.close()
    blocked = [line.split()[1] for status in statuses for line in status.splitlines() if line.startswith("SigBlk")]
    assert any(int(one, 16) & 1 << signal.SIGTERM - 1 for one in blocked)


def test_a_file_without_a_descriptor_is_synced_by_a_thread_of_python() -> None:
    [file] = make_files(SimulatedDisk(random.Random(1)), 1)
    assert isinstance(choose_syncer(file), ThreadSyncer)


def test_without_a_compiler_a_thread_of_python_syncs(
    file: DiskFile, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(native_thread, "_load", lambda *, keeps_lock: None)  # pyright: ignore[reportUnknownLambdaType]
    monkeypatch.setenv("PATH", "")
    assert isinstance(choose_syncer(file), ThreadSyncer)
    assert ("install g++" in caplog.text) == (sys.platform == "linux")


@pytest.mark.usefixtures("thread")
async def test_where_there_is_a_thread_of_cpp_it_syncs(file: DiskFile) -> None:
    syncer = choose_syncer(file)
    assert isinstance(syncer, QueueSyncer)
    assert await synced(syncer, [file]) is None
    await syncer.aclose()
