"""Both syncers fulfil the same contract; the kernel's results are accepted only if they make sense."""

import asyncio
import errno
import os
import random
import select
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from gateway.ledger.disk import DiskFile, LocalDisk
from gateway.ledger.kernel_queue import KernelQueue
from gateway.ledger.syncing import KernelSyncer, Syncer, ThreadSyncer, choose_syncer, why_no_kernel
from tests.faults.ledger.power_loss import SteppedQueue
from tests.simulated_disk import SimulatedDisk, SimulatedFile

PAGE = 4096


class ImmediateQueue(SteppedQueue):
    """A kernel queue that completes every sync immediately."""

    def submit(self, file: DiskFile) -> None:
        super().submit(file)
        self.step()


class UnwillingQueue(SteppedQueue):
    def submit(self, file: DiskFile) -> None:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))


SYNCERS: dict[str, Callable[[], Syncer]] = {
    "thread": ThreadSyncer,
    "kernel": lambda: KernelSyncer(ImmediateQueue()),
}


@pytest.fixture(params=SYNCERS)
async def syncer(request: pytest.FixtureRequest) -> AsyncIterator[Syncer]:
    made = SYNCERS[request.param]()
    yield made
    await made.aclose()


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[KernelQueue]:
    if why := why_no_kernel(tmp_path):
        pytest.skip(f"this kernel does not sync by itself: {why}")
    queue = KernelQueue()
    yield queue
    queue.close()


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


async def test_a_sync_that_the_kernel_will_not_begin_has_failed() -> None:
    syncer = KernelSyncer(UnwillingQueue())
    error = await synced(syncer, [*make_files(SimulatedDisk(random.Random(1)), 1)])
    assert error is not None
    assert error.errno == errno.EAGAIN
    await syncer.aclose()


async def test_a_ring_without_an_end_is_no_end() -> None:
    queue = SteppedQueue()
    syncer = KernelSyncer(queue)
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


def wait_for(queue: KernelQueue) -> None:
    bell = select.poll()
    bell.register(queue.fileno(), select.POLLIN)
    bell.poll()


def test_the_kernel_tells_of_its_end(kernel: KernelQueue, tmp_path: Path) -> None:
    disk = LocalDisk(tmp_path)
    disk.create("1.seg", PAGE, is_urgent=lambda: True)
    file = disk.open("1.seg")
    for _ in range(3):
        file.write(0, b"x")
        assert not kernel.take()
        kernel.submit(file)
        wait_for(kernel)
        assert kernel.take()
    file.close()
    with pytest.raises(OSError, match="io_submit"):
        kernel.submit(file)


def test_the_end_of_another_sync_is_not_taken_for_this_one(kernel: KernelQueue, tmp_path: Path) -> None:
    disk = LocalDisk(tmp_path)
    disk.create("1.seg", PAGE, is_urgent=lambda: True)
    file = disk.open("1.seg")
    kernel.submit(file)
    wait_for(kernel)
    kernel.submit(file)
    with pytest.raises(OSError, match="makes no sense"):
        kernel.take()
    file.close()


def test_a_loop_that_is_gone_does_not_keep_the_kernel_from_ending(kernel: KernelQueue, tmp_path: Path) -> None:
    disk = LocalDisk(tmp_path)
    disk.create("1.seg", PAGE, is_urgent=lambda: True)
    file = disk.open("1.seg")

    async def begin() -> None:
        KernelSyncer(kernel).start([file], lambda error: None)

    asyncio.run(begin())
    file.close()


def test_a_file_that_the_kernel_does_not_know_is_synced_by_a_thread() -> None:
    [file] = make_files(SimulatedDisk(random.Random(1)), 1)
    assert isinstance(choose_syncer(file), ThreadSyncer)


@pytest.mark.usefixtures("kernel")
async def test_where_the_kernel_can_it_does(tmp_path: Path) -> None:
    disk = LocalDisk(tmp_path)
    disk.create("1.seg", PAGE, is_urgent=lambda: True)
    file = disk.open("1.seg")
    syncer = choose_syncer(file)
    assert isinstance(syncer, KernelSyncer)
    assert await synced(syncer, [file]) is None
    await syncer.aclose()
    file.close()
