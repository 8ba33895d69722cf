"""The faults of a fleet, one after the other; a seed determines which, where and for how long."""

import asyncio
import contextlib
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

import asyncpg
import psutil

from tests.faults.fleet.replica import Replica

Kind = Literal[
    "replica killed", "process killed", "writer killed", "process stopped", "writer stopped", "redis stopped", "cut off"
]
KINDS: Final[tuple[Kind, ...]] = (
    "replica killed",  # with its children, as if its machine lost power
    "process killed",  # its children have to notice by themselves
    "writer killed",  # the child that writes to the database
    "process stopped",
    "writer stopped",
    "redis stopped",
    "cut off",  # PostgreSQL closes all connections
)
LONGEST_STOP_SECONDS = 2.0
WRITER = "gateway.storage.sink_process"


@dataclass(slots=True)
class Faults:
    """Causes the faults of one turn after the other; at the end of a turn every replica is up again."""

    replicas: Sequence[Replica]
    redis_pid: int
    postgres_directory: str
    chance: random.Random
    say: Callable[[str], None] = lambda line: None
    done: Counter[Kind] = field(default_factory=Counter[Kind])
    longest_absence_seconds: float = 0.0
    """The longest time that a replica was away: from its end until it was ready again, or while it was stopped."""

    async def turn(self) -> None:
        """Each kind of fault once, in random order."""
        for kind in self.chance.sample(KINDS, len(KINDS)):
            await asyncio.sleep(self.chance.random())
            victim = self.chance.choice(self.replicas)
            self.say(f"{kind} ({victim.home.name})")
            began = time.monotonic()
            await self._befall(kind, victim)
            self.longest_absence_seconds = max(self.longest_absence_seconds, time.monotonic() - began)
            self.done[kind] += 1

    async def _befall(self, kind: Kind, victim: Replica) -> None:
        match kind:
            case "replica killed":
                await asyncio.to_thread(victim.kill)
                await self._start_again(victim)
            case "process killed":
                await asyncio.to_thread(victim.kill, with_children=False)
                await self._start_again(victim)
            case "writer killed":
                for writer in _writers(victim):
                    _send(writer, signal.SIGKILL)
            case "process stopped":
                await self._stop(victim.process)
            case "writer stopped":
                await self._stop(*_writers(victim))
            case "redis stopped":
                await self._stop(psutil.Process(self.redis_pid))
            case "cut off":
                await self._cut_off()

    async def _start_again(self, victim: Replica) -> None:
        await asyncio.sleep(self.chance.random())
        victim.start()
        await asyncio.to_thread(victim.wait_until_ready)

    async def _stop(self, *processes: psutil.Process) -> None:
        try:
            for one in processes:
                _send(one, signal.SIGSTOP)
            await asyncio.sleep(self.chance.random() * LONGEST_STOP_SECONDS)
        finally:
            for one in processes:
                _send(one, signal.SIGCONT)

    async def _cut_off(self) -> None:
        connection = await asyncpg.connect(host=self.postgres_directory, user="postgres", database="postgres")
        try:
            await connection.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where pid <> pg_backend_pid() and backend_type = 'client backend'"
            )
        finally:
            await connection.close()


def _writers(replica: Replica) -> list[psutil.Process]:
    """The children that write to the database; there is none before the first batch, or during a restart."""
    found: list[psutil.Process] = []
    for child in replica.process.children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            found += [child] if WRITER in child.cmdline() else []
    return found


def _send(process: psutil.Process, number: signal.Signals) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):  # it ended by itself, or its parent replaced it
        process.send_signal(number)
