"""Connects asyncio with the step loop, which runs in its own thread.

Only the loop thread touches the engine core. Requests and cancellations reach it through an inbox, emptied before every
step; deltas come back in one call per step. A client that disconnects frees its blocks within one step.
"""

import asyncio
import itertools
import logging
import queue
import threading
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from dataclasses import dataclass

from local_engine.engine_core import Delta, EngineCore
from local_engine.errors import ContextLengthExceeded, EngineDraining, InvalidRequest, QueueFull
from local_engine.kv_cache_manager import KvCacheManager
from local_engine.metrics import EngineMetrics, answer_timings
from local_engine.request import Request, Status, turn_of
from local_engine.sampling.sampling_params import SamplingParams

IDLE_WAIT_SECONDS = 0.5
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EngineState:
    """A snapshot for health checks. `queue_seconds` is the mean wait of recent requests, 0 while nothing waits."""

    status: str
    max_concurrency: int
    running: int
    waiting: int
    queue_seconds: float
    kv_blocks_total: int
    kv_blocks_free: int

    @property
    def free_slots(self) -> int:
        """How many requests could start at once."""
        return max(0, self.max_concurrency - self.running - self.waiting)


class Admission:
    """Slots in the engine that an HTTP request holds until `release`, and its answers.

    Until one of its answers begins, a more important request may take the slots: then `displaced` is set, and the
    holder must give up.
    """

    def __init__(self, engine: "AsyncEngine", answers: int, priority: int, turn: int) -> None:
        self._engine = engine
        self._requests: list[Request] = []
        self.answers = answers
        self.priority = priority
        self.turn = turn
        self.displaced = asyncio.Event()

    @property
    def has_begun(self) -> bool:
        """Whether any of its answers has begun."""
        return any(request.timings.first_scheduled is not None for request in self._requests)

    def generate(
        self, prompt_token_ids: list[int], params: SamplingParams, *, cache_salt: str
    ) -> AsyncGenerator[Delta]:
        """Generates one of its answers; see `AsyncEngine.generate`."""
        return self._engine.generate(
            prompt_token_ids, params, cache_salt=cache_salt, priority=self.priority, of=self._requests
        )

    def release(self) -> None:
        """Returns the slots. Idempotent."""
        self._engine.give_back(self)


class AsyncEngine:
    """Submits requests to an engine core that runs in its own thread."""

    def __init__(
        self,
        core: EngineCore,
        kv_cache: KvCacheManager,
        metrics: EngineMetrics,
        *,
        context_window: int,
        max_running_requests: int,
        max_waiting_requests: int,
        stall_seconds: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._core = core
        self._kv_cache = kv_cache
        self.metrics = metrics
        self.context_window = context_window
        self._max_running = max_running_requests
        self._max_waiting = max_waiting_requests
        self._stall_seconds = stall_seconds
        self._clock = clock
        self._inbox: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._streams: dict[str, asyncio.Queue[Delta]] = {}
        self._requests: dict[str, Request] = {}
        self._numbers = itertools.count(1)
        self._heartbeat = clock()
        self._thread = threading.Thread(target=self._run, name="engine-steps", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        # Holders of slots, oldest first.
        self._admissions: dict[Admission, None] = {}
        self._idle = asyncio.Event()
        self._idle.set()
        self.draining = asyncio.Event()
        self.abandoned = asyncio.Event()
        self.has_died = False
        # If set: why no more answers will be finished.
        self._abandoned: str | None = None

    def start(self) -> None:
        """Starts the step loop; deltas go to the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    async def stop(self) -> None:
        """Ends the step loop, dropping what still runs."""
        self._inbox.put(None)
        await asyncio.to_thread(self._thread.join)

    async def drain(self, limit_seconds: float) -> bool:
        """Refuses new requests and waits for running ones; False if some were left at the limit."""
        self.draining.set()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._idle.wait(), limit_seconds)
        return not self._admissions

    @property
    def _admitted(self) -> int:
        """Answers that hold a slot."""
        return sum(admission.answers for admission in self._admissions)

    @property
    def is_draining(self) -> bool:
        """Whether new requests are refused."""
        return self.draining.is_set()

    @property
    def has_hung(self) -> bool:
        """Whether a step has lasted ten times as long as makes health red: nobody waits for it any more."""
        return self._clock() - self._heartbeat > 10 * self._stall_seconds

    def state(self) -> EngineState:
        scheduler = self._core.scheduler
        is_stalled = self._clock() - self._heartbeat > self._stall_seconds or not self._thread.is_alive()
        running = len(scheduler.running)
        waiting = max(0, self._admitted - running)
        return EngineState(
            status="stalled" if is_stalled else "draining" if self.is_draining else "ok",
            max_concurrency=self._max_running,
            running=running,
            waiting=waiting,
            # Earlier waits are irrelevant once the queue is empty.
            queue_seconds=self.metrics.recent_queue_seconds() if waiting else 0.0,
            kv_blocks_total=self._kv_cache.pool.total_blocks,
            kv_blocks_free=self._kv_cache.pool.free_blocks,
        )

    def admit(
        self,
        prompt_token_ids: list[int],
        answers: int = 1,
        parameter: str = "messages",
        *,
        counted_by: str = "n",
        room: int = 1,
        priority: int = 0,
    ) -> Admission:
        """Take slots for a request's answers; the caller returns them with `release`.

        Refuses what cannot run: a prompt that leaves no room for an answer, a full queue, a process shutting down.
        `parameter` is the field of the prompt; of several prompts pass the longest. `counted_by` is the field that sets
        the number of answers. `room` is the minimum length of an answer, 0 if nothing is drawn. A full engine takes
        slots from requests that have not begun and whose turn is later; a refusal says how long others of its
        `priority` wait.
        """
        self._refuse_if_ending()
        if not prompt_token_ids:
            raise InvalidRequest("The prompt is empty.", parameter=parameter)
        if len(prompt_token_ids) + room > self.context_window:
            message = f"The prompt is too long for this model's {self.context_window} tokens: it has "
            message += f"{len(prompt_token_ids)}" + (" and leaves no room for an answer." if room else ".")
            raise ContextLengthExceeded(message, parameter=parameter)
        limit = self._max_running + self._max_waiting
        if answers > limit:
            raise InvalidRequest(
                f"The engine takes {limit} answers at a time, not {answers}; send fewer.", parameter=counted_by
            )
        held = self._admitted
        turn = turn_of(self._clock(), priority)
        if held + answers > limit and not self._displace(held + answers - limit, turn):
            raise self.full(priority)
        return self._enter(Admission(self, answers, priority, turn))

    def attend(self) -> Admission:
        """For work that needs no slot, but that `drain` waits for. Raises EngineDraining."""
        self._refuse_if_ending()
        return self._enter(Admission(self, 0, 0, 0))

    def _refuse_if_ending(self) -> None:
        if self.is_draining or self.has_died:
            raise EngineDraining("The engine is shutting down.")

    def _enter(self, admission: Admission) -> Admission:
        self._admissions[admission] = None
        self._idle.clear()
        return admission

    def _displace(self, answers: int, turn: int) -> bool:
        """Takes slots from requests that have not begun and whose turn is later, the latest and youngest first; False,
        taking nothing, if they hold too few."""
        waiting = [one for one in reversed(self._admissions) if one.turn > turn and not one.has_begun]
        if sum(one.answers for one in waiting) < answers:
            return False
        for one in sorted(waiting, key=lambda one: one.turn, reverse=True):
            if answers <= 0:
                break
            answers -= one.answers
            one.displaced.set()
            one.release()
        return True

    def full(self, priority: int, *, was_displaced: bool = False) -> QueueFull:
        """The error for a request of this priority that finds no slot, or has lost its own."""
        self.metrics.rejected.inc()
        waits = max(1.0, self.metrics.recent_queue_seconds(priority), self._longest_wait_seconds(priority))
        limit = self._max_running + self._max_waiting
        why = "more important ones took this one's place" if was_displaced else f"it holds {self._admitted}"
        return QueueFull(f"The engine takes {limit} answers at a time; {why}.", retry_after_seconds=waits)

    def _longest_wait_seconds(self, priority: int) -> float:
        """Longest current wait among requests at least as important: early in a burst no finished request shows how
        long it takes."""
        now, ahead = self._clock(), [one for one in self._requests.values() if one.priority <= priority]
        waiting = (one.timings for one in ahead if one.timings.first_scheduled is None)
        return max((now - timings.arrived for timings in waiting), default=0.0)

    def give_back(self, admission: Admission) -> None:
        """Frees an admission's slots. Idempotent."""
        self._admissions.pop(admission, None)
        if not self._admissions:
            self._idle.set()

    async def generate(
        self,
        prompt_token_ids: list[int],
        params: SamplingParams,
        *,
        cache_salt: str = "",
        priority: int = 0,
        of: list[Request] | None = None,
    ) -> AsyncGenerator[Delta]:
        """Yield deltas until one has a finish reason. Leaving the iterator early cancels the request.

        `of` is the list that the request joins: the requests of one admission.
        """
        request = Request(
            request_id=str(next(self._numbers)),
            prompt_token_ids=prompt_token_ids,
            params=params,
            priority=priority,
            cache_salt=cache_salt,
        )
        request.timings.arrived = self._clock()
        if of is not None:
            of.append(request)
        if self._abandoned is not None:
            yield Delta(request, finish_reason="error", error=self._abandoned, is_abandoned=True)
            return
        stream: asyncio.Queue[Delta] = asyncio.Queue()
        self._streams[request.request_id] = stream
        self._requests[request.request_id] = request
        self._inbox.put(lambda: self._core.add(request))
        is_finished = False
        try:
            while not is_finished:
                delta = await stream.get()
                is_finished = delta.finish_reason is not None
                yield delta
        finally:
            del self._streams[request.request_id], self._requests[request.request_id]
            if not is_finished:
                self._inbox.put(lambda: self._cancel(request))

    def _cancel(self, request: Request) -> None:
        if request.status is Status.FINISHED:
            return
        self._core.cancel(request)
        self.metrics.record_end(request, answer_timings(request, self._clock()))

    def _run(self) -> None:
        """The step loop; the outermost edge of the thread."""
        try:
            while self._empty_inbox():
                self._heartbeat = self._clock()
                if self._core.has_work:
                    self._step()
        except Exception:
            # From here on health reports failure, and those who wait get an error instead of hanging.
            self.has_died = True
            logger.exception("The step loop died")
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self.abandon, "The engine's step loop died.")

    def _empty_inbox(self) -> bool:
        """Executes incoming commands, waiting for one if there is no other work; False ends the loop."""
        with suppress(queue.Empty):
            while True:
                command = self._inbox.get(block=not self._core.has_work, timeout=IDLE_WAIT_SECONDS)
                if command is None:
                    return False
                command()
        return True

    def _step(self) -> None:
        report = self._core.step()
        if report.rows:
            self.metrics.record_step(
                report.seconds,
                prefill_tokens=report.prefill_tokens,
                drawn_tokens=sum(len(delta.token_ids) for delta in report.deltas),
                rows=report.rows,
            )
        self.metrics.preemptions.set(self._core.scheduler.preemptions)
        self.metrics.record_drafts(self._core.drafted_tokens, self._core.accepted_tokens)
        now = self._clock()
        for delta in report.deltas:
            if delta.finish_reason is not None:
                self.metrics.record_end(delta.request, answer_timings(delta.request, now))
        if report.deltas and self._loop is not None:
            self._loop.call_soon_threadsafe(self._deliver, report.deltas)

    def abandon(self, message: str) -> None:
        """Tells all waiting and future callers that there will be no answers."""
        self._abandoned = message
        self.abandoned.set()
        waiting = self._requests.values()
        self._deliver([Delta(r, finish_reason="error", error=message, is_abandoned=True) for r in waiting])

    def _deliver(self, deltas: list[Delta]) -> None:
        for delta in deltas:
            stream = self._streams.get(delta.request.request_id)
            if stream is not None:
                stream.put_nowait(delta)
