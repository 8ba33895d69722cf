"""One origin's connections between their exchanges, and the calls that wait for one. Knows no HTTP."""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Coroutine
from typing import Any

from backends.http.http1_connection import Http1Connection

Dial = Callable[[], Coroutine[Any, Any, Http1Connection]]


class Kept:
    """Who finds no idle connection has one dialed and takes whatever is ready first: one dialed, for whomever, or one
    that another call has freed (as Go's `net/http.Transport` does). Else, in a burst, calls that dial would stand
    aside while those that came after them go round on the connections there are.

    Calls that wait are served in the order in which they came.
    """

    def __init__(self, seconds: float) -> None:
        """An idle connection is used for `seconds`: after that its server may have hung up."""
        self._seconds = seconds
        self._idle: deque[Http1Connection] = deque()
        self._waiting: OrderedDict[asyncio.Future[Http1Connection], None] = OrderedDict()
        self._dialing: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def take(self, now: float) -> Http1Connection | None:
        """The connection used last, if it is young enough to be alive; those that are not are closed."""
        self.drop_old(now)
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed:
                return connection
        return None

    def drop_old(self, now: float) -> None:
        idle, oldest_allowed = self._idle, now - self._seconds
        while idle and (idle[0].is_closed or idle[0].idle_since < oldest_allowed):
            idle.popleft().close()

    def give(self, connection: Http1Connection) -> None:
        """It carries nothing now."""
        waiter = self._first_waiting()
        if waiter is not None:
            waiter.set_result(connection)
        elif self._is_closed:
            connection.close()
        else:
            connection.idle_since = asyncio.get_running_loop().time()
            self._idle.append(connection)

    async def next(self, dial: Dial) -> Http1Connection:
        """The next one that is free, or that is dialed. Raises what `dial` does, if none is left to hope for."""
        while True:
            waiter: asyncio.Future[Http1Connection] = asyncio.get_running_loop().create_future()
            self._waiting[waiter] = None
            task = asyncio.create_task(self._fill(dial))
            self._dialing.add(task)
            task.add_done_callback(self._dialed)
            try:
                connection = await waiter
            except asyncio.CancelledError:
                self._waiting.pop(waiter, None)
                if not waiter.cancelled() and waiter.exception() is None:
                    self.give(waiter.result())  # it came in the same moment
                raise
            if not (connection.is_closed and connection.is_used):
                return connection
            # The server hung up behind its last answer.

    def close(self) -> None:
        """Close what is idle; what is being dialed for nobody is closed when it comes."""
        self._is_closed = True
        while self._idle:
            self._idle.pop().close()

    async def _fill(self, dial: Dial) -> None:
        self.give(await dial())

    def _dialed(self, task: asyncio.Task[None]) -> None:
        self._dialing.discard(task)
        if task.cancelled() or (error := task.exception()) is None:
            return
        if len(self._waiting) > len(self._dialing):  # the others' dials are not enough
            waiter = self._first_waiting()
            if waiter is not None:
                waiter.set_exception(error)

    def _first_waiting(self) -> asyncio.Future[Http1Connection] | None:
        while self._waiting:
            waiter, _ = self._waiting.popitem(last=False)
            if not waiter.done():
                return waiter
        return None
