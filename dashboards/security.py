"""Raw ASGI in front of every page: adds security headers, limits request bodies, and refuses other origins as well as
pages and event channels without a session. Knows nothing of pages.

The content security policy runs only scripts that carry the nonce of this response, which every `<script` of a page
gets as it is sent. What is put into it later has none, so markup smuggled into an element stays inert. It has to allow
`unsafe-eval`: the page framework compiles its templates in the browser.
"""

import secrets
from collections.abc import Callable, Set
from urllib.parse import urlsplit

from starlette.exceptions import HTTPException
from starlette.requests import cookie_parser
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dashboards.sign_in.destination import sign_in_address

COOKIE = "breakeven_session"
EVENTS = "/ui/_nicegui_ws/"
FILES = "/ui/static/"
OPEN = frozenset({"/ui/sign-in", "/ui/session", "/ui/healthz"})
"""Paths under /ui that need no session, besides the static files. The page framework serves none of them."""
ANOTHER_SITE = (
    "This request came from another site, or through a proxy that did not pass on the Host header as your browser sent "
    "it (nginx does with `proxy_set_header Host $http_host;`). docs/dashboards.md says what a proxy needs."
)
TWO_LENGTHS = "This request has two lengths: Content-Length and Transfer-Encoding."
"""A proxy in front may take the other one, and the rest of the body for the next visitor's request (RFC 9112, 6.3)."""
STRANGERS_BYTES = 1 << 16
"""Longest body without a session: a form with a key. With longer ones anybody could fill our memory or disk."""
MOST_BYTES = 8 << 20
"""Longest body with a session: the longest text of rules, with every character escaped."""


def content_security_policy(nonce: str) -> str:
    """Allows no origin but our own."""
    return (
        "default-src 'self'; "
        f"script-src 'self' 'nonce-{nonce}' 'unsafe-eval'; "
        "style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self' data:; connect-src 'self'; "
        "object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    )


class Guarded:
    """`is_signed_in` says whether a session cookie is valid; it is called for every message of an event channel."""

    def __init__(
        self, app: ASGIApp, is_signed_in: Callable[[str | None], bool], *, open_paths: Set[str] = OPEN
    ) -> None:
        self._app = app
        self._is_signed_in = is_signed_in
        self._open_paths = open_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        if {"content-length", "transfer-encoding"} <= headers.keys():
            await _refuse(scope, send, TWO_LENGTHS, 400)
            return
        secret = session_cookie(headers.get("cookie"))
        is_change = scope["type"] == "websocket" or scope["method"] not in ("GET", "HEAD")
        if is_change and not is_same_origin(headers.get("origin"), headers.get("host")):
            await _refuse(scope, send, ANOTHER_SITE)
        elif scope["path"].startswith(EVENTS) and not self._is_signed_in(secret):
            await _refuse(scope, send, "Not signed in.")
        elif self._is_strangers_page(scope, secret):
            await _to_sign_in(scope, send)
        elif scope["type"] == "websocket":
            await self._app(scope, self._while_signed_in(receive, secret), send)
        else:
            if is_change:
                receive = _bounded(receive, MOST_BYTES if self._is_signed_in(secret) else STRANGERS_BYTES)
            await self._app(scope, receive, _Hardened(send))

    def _is_strangers_page(self, scope: Scope, secret: str | None) -> bool:
        """A page without a session. The framework would keep it, even one that does not exist, for a minute."""
        path: str = scope["path"]
        is_page = scope["type"] == "http" and scope["method"] in ("GET", "HEAD") and f"{path}/".startswith("/ui/")
        is_open = path in self._open_paths or path.startswith(FILES)
        return is_page and not is_open and not self._is_signed_in(secret)

    def _while_signed_in(self, receive: Receive, secret: str | None) -> Receive:
        """Closes an open page's channel once its session is over. A page sends something at least twice a minute."""

        async def guarded() -> Message:
            message = await receive()
            if message["type"] == "websocket.receive" and not self._is_signed_in(secret):
                return {"type": "websocket.disconnect", "code": 1008, "reason": "Not signed in."}
            return message

        return guarded


class _Hardened:
    """Adds the headers, and the nonce to a page's scripts. Pages are small, so they are buffered until complete."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._nonce = secrets.token_urlsafe(16)
        self._start: Message | None = None
        self._page = b""

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = [(name, value) for name, value in message["headers"] if name != b"server"]
            headers += [
                (b"content-security-policy", content_security_policy(self._nonce).encode()),
                (b"x-content-type-options", b"nosniff"),
                (b"referrer-policy", b"same-origin"),
                (b"cross-origin-opener-policy", b"same-origin"),
                (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
            ]
            message = {**message, "headers": headers}
            if any(name == b"content-type" and value.startswith(b"text/html") for name, value in headers):
                self._start = message
                return
        elif self._start is not None:
            self._page += message.get("body", b"")
            if message.get("more_body", False):
                return
            page = self._page.replace(b"<script", b'<script nonce="' + self._nonce.encode() + b'"')
            headers = [(name, value) for name, value in self._start["headers"] if name != b"content-length"]
            headers += [(b"content-length", str(len(page)).encode()), (b"cache-control", b"no-store")]
            await self._send({**self._start, "headers": headers})
            message = {"type": "http.response.body", "body": page}
            self._start = None
        await self._send(message)


def session_cookie(header: str | None) -> str | None:
    """Our cookie's value in a Cookie header, which may hold others: all ports of a host share their cookies."""
    return cookie_parser(header or "").get(COOKIE)


def is_same_origin(origin: str | None, host: str | None) -> bool:
    """True without an Origin header: browsers send one with every change, and other programs have no cookie of ours."""
    try:
        return origin is None or (host is not None and urlsplit(origin).netloc == host)
    except ValueError:  # `http://[`
        return False


def _bounded(receive: Receive, most: int) -> Receive:
    came = 0

    async def bounded() -> Message:
        nonlocal came
        message = await receive()
        came += len(message.get("body", b""))
        if came > most:
            raise HTTPException(413, f"This is longer than {most:,} bytes.")
        return message

    return bounded


async def _to_sign_in(scope: Scope, send: Send) -> None:
    wanted = f"{scope['path']}?{scope['query_string'].decode('latin-1')}".removesuffix("?")
    headers = [(b"location", sign_in_address(wanted).encode()), (b"content-length", b"0")]
    await send({"type": "http.response.start", "status": 303, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


async def _refuse(scope: Scope, send: Send, text: str, status: int = 403) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008, "reason": text})
        return
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": text.encode()})
