"""A key that is not known here may have been made a moment ago, at another worker or from the command line: before
anything refuses it, the key store is looked at."""

from collections.abc import Awaitable, Callable
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.access.keys import KeyRing
from gateway.api.token_path import credential_of

MOST_SEEN: Final = 10_000


class NewKeys:
    """Wraps the application. `catch_up` takes over what was changed before it was called, or soon gives up.

    A request whose key was seen before pays for one look into a set, of hashes that no key can be read from: two that
    share one only cost the later one its look.
    """

    def __init__(self, app: ASGIApp, keys: KeyRing, catch_up: Callable[[], Awaitable[None]]) -> None:
        self._app = app
        self._keys = keys
        self._catch_up = catch_up
        self._seen: set[int] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            credential = credential_of(scope["headers"])
            if credential is not None and hash(credential) not in self._seen:
                await self._meet(credential)
        await self._app(scope, receive, send)

    async def _meet(self, credential: str) -> None:
        if not self._keys.is_known(credential):
            await self._catch_up()
            if not self._keys.is_known(credential):
                return
        if len(self._seen) >= MOST_SEEN:
            self._seen.clear()
        self._seen.add(hash(credential))
