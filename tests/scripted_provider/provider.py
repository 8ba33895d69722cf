"""The server: accepts requests in any wire format, follows the script, and records what it receives."""

import asyncio
import socket
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Final, Self, cast
from urllib.parse import unquote

import msgspec
from aiohttp import web

from backends.scripted import Outcome
from backends.usage import Usage
from tests.scripted_provider.anthropic_wire import AnthropicWire
from tests.scripted_provider.gemini_wire import GeminiWire
from tests.scripted_provider.openai_wire import OpenAIWire
from tests.scripted_provider.responses_wire import ResponsesWire
from tests.scripted_provider.wire import Request, Wire

STATUS_OF_FAULT: Final = {"rate_limited": 429, "unavailable": 500, "overloaded": 529, "rejected": 400, "auth": 401}
WIRES: Final[Mapping[str, type[Wire]]] = {"messages": AnthropicWire, "responses": ResponsesWire}
"""By operation; all others are in OpenAI's format."""
_BREATH_SECONDS: Final = 0.02  # lets a client in the same loop read everything before the connection is reset


@dataclass(frozen=True, slots=True)
class Raw:
    """Raw bytes, one write per piece; then the answer ends cleanly, or the connection is reset."""

    pieces: tuple[bytes, ...] = ()
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=lambda: {"content-type": "text/event-stream"})
    is_reset: bool = False
    pause_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Received:
    """One request as it arrived."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, object]:
        return cast(dict[str, object], msgspec.json.decode(self.body))


class ScriptedProvider:
    """An async context manager. `plan` sets the outcomes of the next requests, of which the last is repeated; `pages`
    is the answer to every GET; `count` computes the usage from a request's fields instead of the outcome's usage."""

    def __init__(
        self,
        *outcomes: Outcome | Raw,
        port: int = 0,
        keeps_requests: bool = True,
        pages: Raw | None = None,
        count: Callable[[Mapping[str, object]], Usage] | None = None,
    ) -> None:
        self._outcomes: list[Outcome | Raw] = list(outcomes) or [Outcome()]
        self._port = port
        self._keeps_requests = keeps_requests
        self._pages = pages
        self._count = count
        self._runner: web.AppRunner | None = None
        self.received: list[Received] = []
        self._connections: set[object] = set()
        self.cut_by_client = 0
        """The number of answers whose client disconnected before they were complete."""

    def plan(self, outcomes: Iterable[Outcome | Raw]) -> None:
        self._outcomes = list(outcomes)

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def base_url(self) -> str:
        return f"{self.origin}/v1"

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=128 * 1024 * 1024)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        listener = socket.create_server(("127.0.0.1", self._port), backlog=1024)
        self._port = listener.getsockname()[1]
        await web.SockSite(self._runner, listener).start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    @property
    def connections(self) -> int:
        """How many different connections have carried requests."""
        return len(self._connections)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self._connections.add(request.transport)
        body = await request.read()
        if self._keeps_requests:
            self.received.append(Received(request.method, request.path, dict(request.headers.items()), body))
        if request.method == "GET":
            if self._pages is not None:
                return await _send_raw(request, self._pages)
            return web.json_response({"object": "list", "data": []})
        outcome = self._outcomes.pop(0) if len(self._outcomes) > 1 else self._outcomes[0]
        try:
            if isinstance(outcome, Raw):
                return await _send_raw(request, outcome)
            wire, understood = understand(request.path, body)
            if self._count is not None:
                outcome = replace(outcome, usage=self._count(understood.fields))
            if understood.is_stream:
                return await _stream(request, outcome, wire, understood)
            return await _answer(request, outcome, wire, understood)
        except (ConnectionError, asyncio.CancelledError):
            self.cut_by_client += 1
            raise


def understand(path: str, body: bytes) -> tuple[Wire, Request]:
    """Parses a request, whose path tells its format."""
    fields = cast(dict[str, object], msgspec.json.decode(body))
    if path.endswith((":generateContent", ":streamGenerateContent")):
        model, _, method = path.rpartition("/models/")[2].partition(":")
        is_stream = method == "streamGenerateContent"
        return GeminiWire(), Request("generateContent", unquote(model), is_stream, True, fields)
    options = fields.get("stream_options")
    operation = path.rpartition("/v1/")[2].replace("/", ".")
    wire: Wire = WIRES.get(operation, OpenAIWire)()
    return wire, Request(
        operation=operation,
        model=str(fields.get("model")),
        is_stream=fields.get("stream") is True,
        includes_usage=isinstance(options, dict) and cast(dict[str, object], options).get("include_usage") is True,
        fields=fields,
    )


async def _refuse(request: web.Request, outcome: Outcome, wire: Wire) -> web.StreamResponse:
    if outcome.fault == "silent":
        await asyncio.sleep(3600)
    status = STATUS_OF_FAULT[outcome.fault or ""]
    headers = {} if outcome.retry_after_seconds is None else {"retry-after": f"{outcome.retry_after_seconds:g}"}
    return web.Response(status=status, body=wire.error(status), headers=headers, content_type="application/json")


async def _stream(request: web.Request, outcome: Outcome, wire: Wire, understood: Request) -> web.StreamResponse:
    if outcome.fault in {*STATUS_OF_FAULT, "silent"}:
        return await _refuse(request, outcome, wire)
    response = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await response.prepare(request)
    pieces = outcome.pieces if outcome.fault is None else outcome.pieces[: outcome.fault_after_pieces]
    if pieces:
        for event in wire.opening(outcome, understood):
            await response.write(event)
    for number, piece in enumerate(pieces):
        if delay := outcome.piece_delay_seconds if number else outcome.first_piece_delay_seconds:
            await asyncio.sleep(delay)
        await response.write(wire.piece(outcome, understood, piece))
    if outcome.fault is None:
        for event in wire.closing(outcome, understood):
            await response.write(event)
    elif outcome.fault == "error_event":
        await response.write(wire.error_event())
    elif outcome.fault == "garbage":
        await response.write(b'data: {"choices": [{"ind\n\n')
    elif outcome.fault == "stalled":
        await asyncio.sleep(3600)
    elif outcome.fault == "reset":
        await reset(request)
    return response


async def _answer(request: web.Request, outcome: Outcome, wire: Wire, understood: Request) -> web.StreamResponse:
    if outcome.fault in {*STATUS_OF_FAULT, "silent"}:
        return await _refuse(request, outcome, wire)
    await asyncio.sleep(outcome.first_piece_delay_seconds)
    body = wire.answer(outcome, understood)
    if outcome.fault is None:
        return web.Response(body=body, content_type="application/json")
    if outcome.fault == "error_event":
        return web.Response(body=wire.error(500), content_type="application/json")
    if outcome.fault == "garbage":
        return web.Response(body=b"<html>Bad gateway</html>", content_type="text/html")
    headers = {"content-type": "application/json", "content-length": str(len(body))}
    if outcome.fault == "truncated":
        headers["content-length"] = str(len(body) // 2)
    response = web.StreamResponse(headers=headers)
    await response.prepare(request)
    await response.write(body[: len(body) // 2])
    if outcome.fault == "stalled":
        await asyncio.sleep(3600)
    elif outcome.fault == "reset":
        await reset(request)
    return response


async def _send_raw(request: web.Request, raw: Raw) -> web.StreamResponse:
    response = web.StreamResponse(status=raw.status, headers=raw.headers)
    await response.prepare(request)
    for piece in raw.pieces:
        await response.write(piece)
        await asyncio.sleep(raw.pause_seconds)
    if raw.is_reset:
        await reset(request)
    return response


async def reset(request: web.Request) -> None:
    """Reset the TCP connection, after giving the client time to read what was sent."""
    await asyncio.sleep(_BREATH_SECONDS)
    transport = request.transport
    if transport is not None:
        connection: socket.socket = transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()
