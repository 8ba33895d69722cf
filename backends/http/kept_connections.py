"""The idle connections of one origin, and the queue of calls that wait for one. Knows no HTTP."""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Coroutine
from typing import Any

from backends.http.http1_connection import Http1Connection

Dial = Callable[[], Coroutine[Any, Any, Http1Connection]]


class Kept:
    """A call that finds no idle connection dials one, and takes the first that is ready: any newly dialed one, or one
    that another call releases (as in Go's `net/http.Transport`). Otherwise, in a burst, calls that dial would be
    overtaken by later ones that reuse connections.

    Waiting calls are served in order of arrival.
    """

    def __init__(self, seconds: float) -> None:
        """Idle connections are reused for `seconds`; after that the server may have closed them."""
        self._seconds = seconds
        self._idle: deque[Http1Connection] = deque()
        self._waiting: OrderedDict[asyncio.Future[Http1Connection], None] = OrderedDict()
        self._dialing: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def take(self, now: float) -> Http1Connection | None:
        """The most recently used idle connection, if any; expired ones are closed."""
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
        """Hand a free connection to the first waiting call, or keep it as idle."""
        waiter = self._first_waiting()
        if waiter is not None:
            waiter.set_result(connection)
        elif self._is_closed:
            connection.close()
        else:
            self._idle.append(connection)

    async def next(self, dial: Dial) -> Http1Connection:
        """The next connection that is released or dialed. Raises what `dial` does, if no other attempt is left."""
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
                    self.give(waiter.result())  # a connection arrived at the same moment
                raise
            if not (connection.is_closed and connection.is_used):
                return connection
            # The server closed it after its last response.

    def close(self) -> None:
        """Close idle connections; those still being dialed are closed when they are ready, unless a call waits."""
        self._is_closed = True
        while self._idle:
            self._idle.pop().close()

    async def _fill(self, dial: Dial) -> None:
        self.give(await dial())

    def _dialed(self, task: asyncio.Task[None]) -> None:
        self._dialing.discard(task)
        if task.cancelled() or (error := task.exception()) is None:
            return
        if len(self._waiting) > len(self._dialing):  # fewer attempts are left than calls that wait
            waiter = self._first_waiting()
            if waiter is not None:
                waiter.set_exception(error)

    def _first_waiting(self) -> asyncio.Future[Http1Connection] | None:
        while self._waiting:
            waiter, _ = self._waiting.popitem(last=False)
            if not waiter.done():
                return waiter
        return None
