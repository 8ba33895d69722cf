"""Power loss at thousands of simulated moments, and four incorrect journals that the simulation must catch."""

import asyncio
import os
from collections.abc import Callable

import msgspec
import pytest

from gateway.ledger.disk import Disk, DiskFile
from gateway.ledger.entry import Entry
from gateway.ledger.journal import Journal
from gateway.ledger.record import Framing
from gateway.ledger.segments import Segment, Segments
from tests.faults.ledger.power_loss import Simulation

SEEDS = int(os.environ.get("BREAKEVEN_POWER_LOSS_SEEDS", "1000"))
pytestmark = pytest.mark.faults


async def test_every_seed_keeps_every_promise() -> None:
    simulations = [Simulation(seed) for seed in range(SEEDS)]
    for simulation in simulations:
        await simulation.run()
    # The simulation must have covered its intended cases.
    assert sum(len(simulation.acknowledged) for simulation in simulations) > SEEDS
    assert sum(simulation.dropped_bytes > 0 for simulation in simulations) > SEEDS / 4
    assert all(simulation.lives == 4 for simulation in simulations)


async def test_records_of_one_length_that_were_never_synced_do_not_come_back() -> None:
    for seed in range(SEEDS):
        await Simulation(seed, work=("intend",)).run(steps=8)


async def test_a_failing_sync_loses_nothing_that_was_acknowledged() -> None:
    simulations = [Simulation(seed) for seed in range(SEEDS // 2)]
    for simulation in simulations:
        await simulation.run(fail_sync=True)
    assert sum(len(simulation.failures) for simulation in simulations) > SEEDS / 8


class AcknowledgesBeforeSync(Journal):
    async def settle(self, entry: Entry) -> None:
        waiting = asyncio.create_task(super().settle(entry))
        await asyncio.sleep(0)
        waiting.add_done_callback(lambda task: task.cancelled() or task.exception())


class KeepsTheTail(Segments):
    def make_clean(self, segment: Segment, content: bytes) -> None:
        segment.file.write(0, content[: segment.end])
        segment.file.sync()


class KeepsTheTailJournal(Journal):
    segments_class = KeepsTheTail


class NoChecksum(Framing):
    def checksum(self, epoch: int, body: bytes) -> int:
        return 1


class SkipsSync:
    """A disk whose files only claim to be synced."""

    def __init__(self, disk: Disk) -> None:
        self.names, self.create, self.remove = disk.names, disk.create, disk.remove
        self.note, self.noted = disk.note, disk.noted
        self._disk = disk

    def open(self, name: str) -> DiskFile:
        return UnsyncedFile(self._disk.open(name))


class UnsyncedFile:
    def __init__(self, file: DiskFile) -> None:
        self.size, self.read, self.write, self.close = file.size, file.read, file.write, file.close
        self.fileno = file.fileno

    def sync(self) -> None:
        return


def skips_sync(seed: int) -> Simulation:
    simulation = Simulation(seed)
    simulation.see_disk = SkipsSync
    return simulation


MUTANTS: dict[str, Callable[[int], Simulation]] = {
    "acknowledges before the sync": lambda seed: Simulation(seed, make_journal=AcknowledgesBeforeSync),
    "skips the sync": skips_sync,
    # Only unsynced intents of equal length: a lost one's successor fits exactly before one that was not lost.
    "leaves the torn tail": lambda seed: Simulation(seed, make_journal=KeepsTheTailJournal, work=("intend",)),
    "has no checksum": lambda seed: Simulation(seed, framing=NoChecksum()),
}


@pytest.mark.parametrize("first_seed", [0, 1], ids=["native", "python"])
@pytest.mark.parametrize("mutant", MUTANTS)
async def test_a_wrong_journal_is_caught(mutant: str, first_seed: int) -> None:
    for seed in range(first_seed, SEEDS, 2):
        try:
            await MUTANTS[mutant](seed).run(steps=8 if "tail" in mutant else 40)
        except (AssertionError, msgspec.DecodeError):
            return
    pytest.fail(f"a journal that {mutant} survived {SEEDS // 2} seeds")
