"""Counts the calls that a key and its team have under way, from before a body is read until the answer's last byte.

Only where such a limit is set: else no call is asked whose it is, and none is looked at here.
"""

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.access.keys import KeyRecord
from gateway.api.shedding import API
from gateway.errors import Unauthenticated
from gateway.limits.admission import Admission
from gateway.limits.stay import Stay

CALL: Final = "breakeven.call"
TOLD_SECONDS: Final = 0.5
"""The last byte waits no longer until other workers know that there is a place again."""


class _Call:
    stay: Stay | None = None

    def let_go(self) -> "asyncio.Future[object] | None":
        """Once; what is returned is done when everybody knows."""
        stay, self.stay = self.stay, None
        told = None if stay is None else stay.let_go()
        return None if told is None else asyncio.ensure_future(told)


class UnderWay:
    """Wraps the application, inside of whatever bounds bodies. `key_of` raises Unauthenticated for a stranger, whom the
    endpoints refuse themselves.

    A refusal is raised from `receive`, so that each endpoint tells it in its own error format.
    """

    def __init__(self, app: ASGIApp, admission: Admission, key_of: Callable[[Scope], KeyRecord]) -> None:
        self._app = app
        self._admission = admission
        self._key_of = key_of

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (
            not self._admission.counts_stays
            or scope["type"] != "http"
            or scope["method"] != "POST"
            or not scope["path"].startswith(API)
        ):
            await self._app(scope, receive, send)
            return
        call, is_asked = _Call(), False

        async def entering() -> Message:
            nonlocal is_asked
            if not is_asked:
                is_asked = True
                call.stay = await self._enter(scope)
            return await receive()

        async def leaving(message: Message) -> None:
            """Whoever has heard all of an answer may ask again, and must find the place free."""
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                told = call.let_go()
                if told is not None:
                    await asyncio.wait((told,), timeout=TOLD_SECONDS)
            await send(message)

        try:
            await self._app({**scope, CALL: call}, entering, leaving)
        finally:
            call.let_go()

    async def _enter(self, scope: Scope) -> Stay | None:
        try:
            key = self._key_of(scope)
        except Unauthenticated:
            return None
        return await self._admission.enter(key.id, team=key.team)


@contextmanager
def going_on(scope: Scope) -> Generator[None]:
    """Of a call whose work goes on when its caller has left: so does its place. Begin it while the caller is there."""
    call = scope.get(CALL)
    stay = None if call is None else call.stay
    if stay is None:
        yield
        return
    stay.hold()
    try:
        yield
    finally:
        stay.let_go()
