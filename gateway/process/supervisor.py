"""Keeps a child process running: restarts it with back-off when it dies or stands still."""

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gateway.process.heartbeat import Patience, Pulse

log = logging.getLogger(__name__)
FIRST_WAIT_SECONDS = 0.5
LONGEST_WAIT_SECONDS = 30.0
STEADY_SECONDS = 60.0
"""After running this long, a child's next death gets the shortest wait again."""
COULD_NOT_START = 126
"""The exit status that shells use for what cannot be executed."""


@dataclass(slots=True)
class Supervisor:
    """One child. Start `run` as a task; cancelling the task ends the child gently, then by force.

    Its output goes to `log_file`, or without one to our own output. Its environment is ours, minus `withheld`, plus
    `environment`.
    """

    name: str
    command: Sequence[str]
    log_file: Path | None
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    withheld: frozenset[str] = frozenset()
    stop_seconds: float = 20.0
    patience: Patience | None = None
    """If set, the child is given a pipe to beat into (`--beats`), and killed when it stops."""
    on_restart: Callable[[int], None] | None = None
    pid: int | None = None

    async def run(self) -> None:
        """Start, wait, restart; until cancelled."""
        wait = FIRST_WAIT_SECONDS
        while True:
            began = asyncio.get_running_loop().time()
            status = await self._try_once()
            if asyncio.get_running_loop().time() - began >= STEADY_SECONDS:
                wait = FIRST_WAIT_SECONDS
            why = f" ({self.log_file} says why)" if self.log_file is not None else ""
            log.error("%s ended with status %s; starting it again in %.1f s%s", self.name, status, wait, why)
            if self.on_restart is not None:
                self.on_restart(status)
            await asyncio.sleep(wait)
            wait = min(wait * 2, LONGEST_WAIT_SECONDS)

    async def _try_once(self) -> int:
        try:
            return await self._run_once()
        except OSError as error:  # no process, no descriptor, no space for its log: all of these are temporary
            log.error("%s could not be started (%s)", self.name, error)
            return COULD_NOT_START

    async def _run_once(self) -> int:
        with contextlib.nullcontext() if self.patience is None else contextlib.closing(Pulse(self.patience)) as pulse:
            process = await self._started(pulse)
            self.pid = process.pid
            watching = None if pulse is None else asyncio.create_task(self._kill_when_still(process, pulse))
            try:
                return await process.wait()
            except asyncio.CancelledError:
                await asyncio.shield(self._end(process))
                raise
            finally:
                self.pid = None
                if watching is not None:
                    watching.cancel()

    async def _started(self, pulse: Pulse | None) -> asyncio.subprocess.Process:
        inherited = {name: value for name, value in os.environ.items() if name not in self.withheld}
        try:
            with contextlib.nullcontext() if self.log_file is None else self.log_file.open("ab") as output:
                return await asyncio.create_subprocess_exec(
                    *self.command,
                    *(() if pulse is None else pulse.arguments()),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env={**inherited, **self.environment},
                    start_new_session=True,  # Ctrl-C reaches only us; we then stop the child in order
                    pass_fds=() if pulse is None else (pulse.descriptor,),
                )
        finally:
            if pulse is not None:
                pulse.left_to_child()

    async def _kill_when_still(self, process: asyncio.subprocess.Process, pulse: Pulse) -> None:
        """A stuck child keeps accepting its share of connections, which would wait forever."""
        seconds = await pulse.stops()
        log.error(
            "%s (process %d) has stood still for %.0f s: it was stopped, its disk does not answer, or it is busy with "
            "one thing. Killing it, to start it again; what a worker had accepted is booked then",
            self.name,
            process.pid,
            seconds,
        )
        process.kill()

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        if process.returncode is not None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(process.wait(), self.stop_seconds)
        except TimeoutError:
            log.warning("%s did not end within %.0f s; killing it", self.name, self.stop_seconds)
            process.kill()
            await process.wait()
