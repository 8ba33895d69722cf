"""Works on one batch from its current state to the end: checks its file, asks its lines, stores results as they come.

The worker may die at any moment: stored lines are not asked again, those in progress are. Only a line answered just
before, and not stored yet, can be asked (and booked) twice.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from functools import reduce
from typing import Any, Final

import msgspec

from gateway.batches.lines import Check, Line, Lines, LineTooLong, expired, parse_line
from gateway.batches.pace import Pace
from gateway.batches.values import Batch, FileReader, LineProblem, LineResult, Progress, Results, Status, Tokens
from gateway.errors import DatabaseDown, NotFound, StateError
from gateway.process.tasks import end_tasks, to_its_end

log = logging.getLogger(__name__)
LEASE_SECONDS: Final = 30.0
"""How long a batch stays reserved for its worker without a sign of life."""
STORE_SECONDS: Final = 1.0
"""Results are stored together at this interval."""
LOOK_SECONDS: Final = 0.5
"""How often a line that waits for a busy model checks again."""
LOOKED_AT_BYTES: Final = 1 << 16
"""Lines up to this size are checked at that interval, longer ones less often: checking 30 MB takes a third of a
second."""
RETRY_SECONDS: Final = 5.0
STORED_AT_ONCE: Final = 100
BREATH: Final = 100
"""Lines processed before others get to run."""


class Lost(Exception):
    """Another worker has the batch."""


class BatchRun:
    """Call `run` once. `ask` asks one line, however long it takes; `is_asking` says whether its task is in the pipeline
    rather than waiting for a retry; `awaits` says whether a line should wait."""

    def __init__(
        self,
        batch: Batch,
        files: FileReader,
        batches: Results,
        *,
        runner: str,
        ask: Callable[[Batch, Line], Coroutine[Any, Any, LineResult]],
        is_asking: Callable[[asyncio.Task[None]], bool],
        awaits: Callable[[Batch, Line], bool],
        now_us: Callable[[], int],
        monotonic: Callable[[], float],
        most_at_once: int,
        most_lines: int,
        most_line_bytes: int,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._batch = batch
        self._files = files
        self._batches = batches
        self._runner = runner
        self._ask = ask
        self._is_asking = is_asking
        self._awaits = awaits
        self._now_us = now_us
        self._sleep = sleep
        self._most_lines = most_lines
        self._most_line_bytes = most_line_bytes
        self._room = asyncio.Semaphore(most_at_once)
        self._pace = Pace(most_at_once)
        self._monotonic = monotonic
        self._asked: set[asyncio.Task[None]] = set()
        self._results: list[LineResult] = []
        self._storing = asyncio.Lock()
        self._is_stopping = self._is_unstored = self._is_lost = False
        self._is_expired = batch.progress.expired > 0

    async def run(self) -> None:
        """Runs to the end, or until cancelled, wound down or lost to another worker. What was answered is stored in any
        case."""
        storing = asyncio.create_task(self._store_for_ever(), name="results of a batch")
        working = asyncio.create_task(self._work(), name="lines of a batch")
        try:
            await asyncio.wait((storing, working), return_when=asyncio.FIRST_COMPLETED)
            await (storing if storing.done() else working)
        except Lost:
            log.warning("%s was taken over: there was no sign of life here for %.0f s", self._batch.id, LEASE_SECONDS)
            self._results.clear()
        finally:
            await end_tasks((storing, working, *self._asked))
            if self._results:
                with contextlib.suppress(Lost):
                    await self._store()

    @property
    def lines_under_way(self) -> int:
        return len(self._asked)

    def wind_down(self) -> None:
        """Starts no more lines: `run` ends when those in progress have."""
        self._is_stopping = True
        self._give_up_waiting()

    def _give_up_waiting(self) -> None:
        """Cancels lines that wait for a retry, which would delay the end by as much."""
        for task in self._asked:
            if not self._is_asking(task):
                task.cancel()

    @property
    def _is_cancelled(self) -> bool:
        return self._batch.status == "cancelling"

    def _is_late(self) -> bool:
        return self._now_us() >= self._batch.deadline_us

    async def _work(self) -> None:
        try:
            if self._batch.status == "validating":
                await self._validate()
            if self._batch.status == "in_progress":
                await self._ask_all()
        except NotFound as error:  # the file was deleted just as the batch was created
            await self._end_lines()
            await self._store("failed", problems=(LineProblem("file_not_found", str(error), param="input_file_id"),))
        if self._is_stopping or self._batch.status == "failed":
            return
        if self._is_cancelled:
            await self._store("cancelled")
        elif self._is_expired:
            await self._store("expired")
        else:
            await self._store("completed")

    async def _validate(self) -> None:
        check = Check(self._batch.asked.endpoint, most_lines=self._most_lines)
        problems: tuple[LineProblem, ...] = ()
        try:
            async with contextlib.aclosing(self._lines()) as lines:
                async for number, text in lines:
                    check.look(number, text)
                    if check.total % BREATH == 0:
                        await self._sleep(0)
            problems = check.end()
        except LineTooLong as error:
            problems = (error.problem,)
        if problems:
            await self._store("failed", problems=problems)
        else:
            await self._store("in_progress", progress=Progress(total=check.total))

    async def _ask_all(self) -> None:
        """Asks every line without a result, in order, until cancelled or stopped."""
        done = await self._done_lines()
        place = 0
        async with contextlib.aclosing(self._lines()) as lines:
            async for number, text in lines:
                place += 1
                if number in done:
                    continue
                line = parse_line(number, text, self._batch.asked.endpoint)
                assert isinstance(line, Line)  # validated before
                await self._room.acquire()
                if not await self._begin(line, place):
                    break
        await self._end_lines()

    async def _end_lines(self) -> None:
        if self._asked:
            await asyncio.wait(self._asked)

    async def _begin(self, line: Line, place: int) -> bool:
        """Starts the line when it is due. False if neither it nor any after it will start."""
        while not (self._is_cancelled or self._is_stopping):
            if self._is_late():
                self._expire(line)
                self._room.release()
                await self._sleep(0)
                return True
            if not self._is_unstored and (self._must_hurry(place) or not self._awaits(self._batch, line)):
                task = asyncio.create_task(self._serve(line), name="line of a batch")
                self._asked.add(task)
                task.add_done_callback(self._asked.discard)
                return True
            await self._sleep(LOOK_SECONDS * (1 + len(line.body) // LOOKED_AT_BYTES))
        self._room.release()
        return False

    def _must_hurry(self, place: int) -> bool:
        batch = self._batch
        return self._pace.must_hurry(
            self._now_us(),
            created_at_us=batch.created_at_us,
            deadline_us=batch.deadline_us,
            lines_left=batch.progress.total - place + 1,
        )

    async def _serve(self, line: Line) -> None:
        began = self._monotonic()
        try:
            self._results.append(await self._ask(self._batch, line))
            self._pace.note(self._monotonic() - began)
        except asyncio.CancelledError:
            if self._is_late():
                self._expire(line)
            raise
        finally:
            self._room.release()

    def _expire(self, line: Line) -> None:
        self._is_expired = True
        self._results.append(expired(line))

    async def _store_for_ever(self) -> None:
        """Also notices cancellation, and ends lines in progress past the deadline. Raises Lost."""
        while True:
            await self._sleep(STORE_SECONDS)
            await self._store()
            if self._is_cancelled or self._is_stopping:
                self._give_up_waiting()
            if self._is_late():
                for task in self._asked:
                    task.cancel()

    async def _store(self, status: Status | None = None, **found: object) -> None:
        """Stores all results at hand and, with the last of them, the new status and the fields `found`. Raises Lost.

        The batch is changed only here, under a lock, so that concurrent updates do not overwrite each other.
        """
        async with self._storing:
            if self._is_lost:
                raise Lost
            is_last = False
            while not is_last:
                some = self._results[:STORED_AT_ONCE]
                is_last = len(some) == len(self._results)
                batch = msgspec.structs.replace(self._batch, **found)
                batch = msgspec.structs.replace(
                    batch,
                    progress=_with(batch.progress, some),
                    status=status if status is not None and is_last else batch.status,
                )
                await self._save_at_last(batch, some)

    async def _save_at_last(self, batch: Batch, results: Sequence[LineResult]) -> None:
        """Retries until the database accepts it. Raises Lost."""
        while True:
            try:
                # An interrupted transaction keeps SQLite locked for a while, so that the final results were lost.
                await to_its_end(self._save(batch, results))
            except StateError as error:
                self._is_unstored = True  # nothing new is started meanwhile
                log.warning("results of %s cannot be stored (%s); trying again", batch.id, error)
                await self._sleep(RETRY_SECONDS)
            else:
                self._is_unstored = False
                return

    async def _save(self, batch: Batch, results: Sequence[LineResult]) -> None:
        now = await self._batches.save(batch, results, runner=self._runner, seconds=LEASE_SECONDS)
        if now is None:
            self._is_lost = True
            raise Lost
        del self._results[: len(results)]
        # Readers see only what is stored, and we learn here whether somebody cancels the batch.
        self._batch = msgspec.structs.replace(batch, status=now.status, times_us=now.times_us)

    async def _lines(self) -> AsyncGenerator[tuple[int, bytes]]:
        lines = Lines(most_bytes=self._most_line_bytes)
        async with contextlib.aclosing(self._parts()) as parts:
            async for part in parts:
                for one in lines.feed(part):
                    yield one
        for one in lines.end():
            yield one

    async def _parts(self) -> AsyncGenerator[bytes]:
        """The file's bytes, each once: after a database failure it is read again, skipping what was delivered."""
        told = 0
        while True:
            seen = 0
            try:
                async for part in self._files.read(self._batch.input_file_id):
                    seen += len(part)
                    if seen > told:
                        new, told = part[told - seen :], seen
                        yield new
                return
            except DatabaseDown as error:
                await self._wait_for_database(error)

    async def _done_lines(self) -> set[int]:
        while True:
            try:
                return await self._batches.done_lines(self._batch)
            except DatabaseDown as error:
                await self._wait_for_database(error)

    async def _wait_for_database(self, error: DatabaseDown) -> None:
        """Waits instead of failing: the run would resume only when its lease is over, and its lines be asked twice."""
        log.warning("%s cannot be read (%s); trying again", self._batch.id, error)
        await self._sleep(RETRY_SECONDS)


def _with(said: Progress, results: Sequence[LineResult]) -> Progress:
    """Adds up results; each is stored, and so counted, only once."""
    answers = [one for one in results if not one.is_error]
    errors = [one for one in results if one.is_error]
    return msgspec.structs.replace(
        said,
        completed=said.completed + len(answers),
        failed=said.failed + len(errors),
        output_bytes=said.output_bytes + sum(len(one.text) for one in answers),
        error_bytes=said.error_bytes + sum(len(one.text) for one in errors),
        tokens=reduce(Tokens.plus, (one.tokens for one in answers), said.tokens),
        cost_pico_usd=said.cost_pico_usd + sum(one.cost_pico_usd or 0 for one in answers),
        expired=said.expired + sum(one.is_expired for one in errors),
        unpriced=said.unpriced + sum(one.cost_pico_usd is None for one in answers),
        models=tuple(sorted({*said.models, *(one.model for one in answers if one.model)})),
    )
