"""Looks an unknown key up in the key store before it is refused: another worker or the command line may just have made
it. If the store is down the caller is told to retry, since clients treat "unknown key" as final."""

from collections.abc import Awaitable, Callable
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.access.keys import KeyRing
from gateway.api.token_path import credential_of

MOST_SEEN: Final = 10_000


class NewKeys:
    """Wraps the application. `catch_up` applies all earlier changes to keys, or gives up soon and returns False.

    For keys seen before, the cost is one set lookup, and no coroutine of its own. The set holds only hashes, from which
    no key can be recovered; on a collision, the later key merely skips the lookup in the store.
    """

    def __init__(self, app: ASGIApp, keys: KeyRing, catch_up: Callable[[], Awaitable[bool]]) -> None:
        self._app = app
        self._keys = keys
        self._catch_up = catch_up
        self._seen: set[int] = set()

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        credential = credential_of(scope["headers"]) if scope["type"] != "lifespan" else None
        if credential is None or hash(credential) in self._seen:
            return self._app(scope, receive, send)
        return self._with_new(credential, scope, receive, send)

    async def _with_new(self, credential: str, scope: Scope, receive: Receive, send: Send) -> None:
        if await self._meet(credential):
            await self._app(scope, receive, send)
            return
        with self._keys.doubting(credential):
            await self._app(scope, receive, send)

    async def _meet(self, credential: str) -> bool:
        """Whether it is certain by now that the key exists, or that it does not."""
        if not self._keys.is_known(credential):
            is_caught_up = await self._catch_up()
            if not self._keys.is_known(credential):
                return is_caught_up
        if len(self._seen) >= MOST_SEEN:
            self._seen.clear()
        self._seen.add(hash(credential))
        return True
