"""The web UI under a path of a shared host, as in https://intranet.example/breakeven/ui. Raw ASGI.

Everything behind this layer sees paths that begin with `/ui`, and its links are relative. Only what a browser resolves
from the host's root is prefixed here: redirects and the paths of cookies.
"""

import re
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

FORWARDED = "x-forwarded-prefix"
"""The page framework prefixes its own addresses with this header's value. Only we set it; a client's is removed."""
PREFIX = re.compile(r"(/[\w.~-]*[\w~-][\w.~-]*)+", re.ASCII)
COOKIE_PATH = re.compile(rb"(?<=; Path=)(?=/ui(?:[/;]|$))")
OURS = ("/ui", "/ui/")


def parse_prefix(text: str) -> str:
    """`/breakeven`, or "" for a host of its own. Raises ValueError."""
    prefix = text.rstrip("/")
    if prefix and not PREFIX.fullmatch(prefix):
        raise ValueError(f"{text!r} is not a path such as /breakeven, of letters, digits, - . _ ~ and /")
    if f"{prefix}/".startswith("/ui/"):
        raise ValueError("it cannot begin with /ui, where the pages themselves are")
    return prefix


def prefix_of(request: Request) -> str:
    """The prefix, for addresses that must be absolute because the page's depth is unknown."""
    return request.headers.get(FORWARDED, "")


class Prefixed:
    """Serves `app` under `prefix` and without it, so that a proxy may take the prefix off or leave it."""

    def __init__(self, app: ASGIApp, prefix: str) -> None:
        self._app = app
        self._prefix = prefix

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = [(name, value) for name, value in scope["headers"] if name != FORWARDED.encode()]
        if not self._prefix:
            await self._app({**scope, "headers": headers}, receive, send)
            return
        headers.append((FORWARDED.encode(), self._prefix.encode()))
        host = dict(headers).get(b"host", b"").decode("latin-1")

        async def send_prefixed(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [(name, self._prefixed(name, value, host)) for name, value in message["headers"]]
                message = {**message, "headers": headers}
            await send(message)

        inner = {**scope, "headers": headers, "path": self._without(scope["path"])}
        await self._app(inner, receive, send_prefixed)

    def _without(self, path: str) -> str:
        is_under = f"{path}/".startswith(f"{self._prefix}/")
        return (path.removeprefix(self._prefix) or "/") if is_under else path

    def _prefixed(self, name: bytes, value: bytes, host: str) -> bytes:
        if name == b"set-cookie":
            return COOKIE_PATH.sub(self._prefix.encode(), value)
        return self._location(value.decode("latin-1"), host).encode("latin-1") if name == b"location" else value

    def _location(self, location: str, host: str) -> str:
        """Prefixes our own redirects, which may name the host; an identity provider's stays as it is."""
        parts = urlsplit(location)
        if parts.netloc not in ("", host) or not (parts.path == OURS[0] or parts.path.startswith(OURS[1])):
            return location
        return parts._replace(path=self._prefix + parts.path).geturl()
