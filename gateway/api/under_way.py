"""Counts the concurrent calls of a key and its team, from before the body is read until the answer's last byte.

Does nothing, not even authenticate or make a coroutine, unless such a limit is set.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator
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
"""How long the last byte waits at most for other workers to learn that the place is free."""


class _Call:
    stay: Stay | None = None

    def let_go(self) -> asyncio.Future[object] | None:
        """Frees the place, once. The future completes when all workers know."""
        stay, self.stay = self.stay, None
        told = None if stay is None else stay.let_go()
        return None if told is None else asyncio.ensure_future(told)


class UnderWay:
    """Wraps the application, inside the middleware that limits bodies. `key_of` raises Unauthenticated for strangers,
    whom the endpoints refuse themselves.

    A refusal is raised from `receive`, so that each endpoint reports it in its own error format.
    """

    def __init__(self, app: ASGIApp, admission: Admission, key_of: Callable[[Scope], KeyRecord]) -> None:
        self._app = app
        self._admission = admission
        self._key_of = key_of

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if (
            not self._admission.counts_stays
            or scope["type"] != "http"
            or scope["method"] != "POST"
            or not scope["path"].startswith(API)
        ):
            return self._app(scope, receive, send)
        return self._counted(scope, receive, send)

    async def _counted(self, scope: Scope, receive: Receive, send: Send) -> None:
        call, is_asked = _Call(), False

        async def entering() -> Message:
            nonlocal is_asked
            if not is_asked:
                is_asked = True
                call.stay = await self._enter(scope)
            return await receive()

        async def leaving(message: Message) -> None:
            """A caller that has received its whole answer may call again at once, and must find the place free."""
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
    """Keeps the place of a call whose work continues after its caller has left. Enter while the caller is there."""
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
