"""WebSockets at `/v1/responses`, as OpenAI's Responses API has them: each `response.create` becomes a POST of the token
path, made in this process, and each event of its answer one message. Knows no server and no pipeline.

Requests of one lane (`stream_id`) are answered one after another, those of different lanes at the same time.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from backends.formats.json_objects import decode_object
from gateway.access.keys import KeyRecord, require_model_access
from gateway.api.shedding import RETRY_SECONDS, Load
from gateway.api.socket_calls import Create, Post, error_message, parse_create, posted_body, warm_response
from gateway.errors import BreakevenError, InvalidRequest, NotFound, Overloaded
from gateway.ids import new_request_id
from gateway.kept_answers.conversation_items import require_calls
from gateway.kept_answers.socket_turns import SocketTurn, SocketTurns, answered, turn_of
from gateway.ledger.entry import tenant_of
from gateway.openai_errors import body_of, headers_of, status_of
from gateway.process.socket_protocol import STOPPING
from gateway.process.tasks import end_tasks

log = logging.getLogger(__name__)
RESPONSES: Final = "/v1/responses"
PLACES: Final = (RESPONSES, "/v1")
"""LiveKit's client asks at its base URL itself."""
OPEN_SECONDS: Final = 3600.0
"""As at OpenAI. The responses being written then are finished."""
MOST_AT_ONCE: Final = 16
MOST_LANES: Final = 32
"""Both per WebSocket, as at OpenAI."""
MOST_WAITING: Final = 100
"""Requests of one WebSocket that wait for earlier ones."""
_WENT_AWAY, _FAILED, _RESTARTS = 1001, 1011, 1012
"""Close codes upon which OpenAI's clients connect again (https://www.iana.org/assignments/websocket)."""


def takes_socket(path: str) -> bool:
    """Whether one may be opened there: at the endpoint, under whichever of its addresses."""
    return path.rstrip("/").endswith(("/responses", "/v1"))


@dataclass(frozen=True, slots=True)
class SocketLimits:
    """`most` WebSockets per process, of which one key may have half; `most_buffered_bytes` of all requests in progress
    and waiting."""

    most: int
    most_buffered_bytes: int


class ResponseSockets:
    """ASGI application for WebSockets. `posts` is the application that answers POSTs; `key_of` raises RequestError;
    `admit` counts a request without tokens towards the rates of its key, and raises RateLimitExceeded."""

    def __init__(
        self,
        posts: ASGIApp,
        load: Load,
        limits: SocketLimits,
        turns: SocketTurns,
        *,
        key_of: Callable[[Scope], KeyRecord],
        admit: Callable[[KeyRecord], Awaitable[object]],
        open_seconds: float = OPEN_SECONDS,
    ) -> None:
        self.posts = posts
        self.load = load
        self.limits = limits
        self.turns = turns
        self.key_of = key_of
        self.admit = admit
        self.open_seconds = open_seconds
        self._of_key: dict[str, int] = {}

    @property
    def open(self) -> int:
        return sum(self._of_key.values())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        try:
            key = self._welcome(scope)
        except BreakevenError as error:
            await _decline(error, send)
            return
        self._of_key[key.id] = self._of_key.get(key.id, 0) + 1
        try:
            await send({"type": "websocket.accept"})
            await _Socket(self, {**scope, "path": RESPONSES}, receive, send, tenant_of(key.team, key.id)).run()
        except OSError:  # servers raise it once the client has gone
            return
        finally:
            self._of_key[key.id] -= 1
            if not self._of_key[key.id]:
                del self._of_key[key.id]

    def _welcome(self, scope: Scope) -> KeyRecord:
        if scope["path"].rstrip("/") not in PLACES:
            raise NotFound(f"There is no WebSocket at {scope['path']}; there is one at {RESPONSES}.", code="not_found")
        key = self.key_of(scope)
        require_model_access(key)
        most = self.limits.most
        if self.open >= most or self._of_key.get(key.id, 0) * 2 >= max(most, 2):
            raise Overloaded(
                f"This gateway accepts no more WebSockets for now: it has {most:,}, or half of them are this key's. "
                "Close some, or send POSTs.",
                retry_after_seconds=RETRY_SECONDS,
            )
        return key


@dataclass(slots=True)
class _Lane:
    """`latest` is the id of its latest response, if that can be continued here."""

    name: str | None
    waiting: deque[Create] = field(default_factory=deque[Create])
    task: asyncio.Task[None] | None = None
    latest: str | None = None


class _Socket:
    """One open WebSocket."""

    def __init__(self, all_sockets: ResponseSockets, scope: Scope, receive: Receive, send: Send, owner: str) -> None:
        self._all = all_sockets
        self._scope = scope
        self._receive = receive
        self._send = send
        self._owner = owner
        self._name = new_request_id()
        self._lanes: dict[str | None, _Lane] = {}
        self._places = asyncio.Semaphore(MOST_AT_ONCE)
        self._given_up: list[str | None] = []
        self._leaving: set[Callable[[], None]] = set()
        self._is_gone = False
        self._close_code: int | None = None
        self._ending = asyncio.Event()

    async def run(self) -> None:
        """Until the client leaves, the server stops, or its time is over; running responses are finished then."""
        hearing, ending = asyncio.create_task(self._hear()), asyncio.create_task(self._ending.wait())
        try:
            await asyncio.wait((hearing, ending), timeout=self._all.open_seconds, return_when=asyncio.FIRST_COMPLETED)
            is_over = not (hearing.done() or ending.done())
            self._end(_WENT_AWAY)
            while tasks := [lane.task for lane in self._lanes.values() if lane.task is not None]:
                await asyncio.wait(tasks)
            for lane in self._given_up:
                await self._tell(error_message(_is_closing(), lane))
            if hearing.done():
                hearing.result()
            if is_over:
                await self._tell(error_message(_time_is_over(self._all.open_seconds)))
            if not self._is_gone:
                await self._send({"type": "websocket.close", "code": self._close_code})
        finally:
            self._end(_FAILED)
            await end_tasks([hearing, ending, *(lane.task for lane in self._lanes.values() if lane.task is not None)])
            for lane in self._lanes.values():
                self._forget(lane)

    async def _hear(self) -> None:
        """Until the client has gone."""
        while (message := await self._receive())["type"] != "websocket.disconnect":
            if message["type"] == STOPPING:
                self._end(_RESTARTS)
            else:
                await self._take(message)
        self._is_gone = True
        self._end(_WENT_AWAY)
        for leave in tuple(self._leaving):
            leave()

    def _end(self, code: int) -> None:
        """Nothing more is begun, and what waits is refused once its lane is silent; the first reason counts."""
        if self._close_code is None:
            self._close_code = code
        self._ending.set()
        for lane in self._lanes.values():
            while lane.waiting:
                self._release(lane.waiting.popleft())
                self._given_up.append(lane.name)

    async def _take(self, message: Message) -> None:
        text: str | None = message.get("text")
        lane = None
        try:
            create = parse_create(message["bytes"] if text is None else text.encode())
            lane = create.lane
            self._wait_in_lane(create)
        except BreakevenError as error:
            await self._tell(error_message(error, lane))

    def _wait_in_lane(self, create: Create) -> None:
        """Raises RequestError."""
        load, most_bytes = self._all.load, self._all.limits.most_buffered_bytes
        if self._close_code is not None:
            raise _is_closing()
        is_full = sum(len(lane.waiting) for lane in self._lanes.values()) >= MOST_WAITING
        if is_full or load.buffered_bytes + len(create.body) > most_bytes:
            raise Overloaded(
                f"Too much waits to be answered: {MOST_WAITING} requests of this WebSocket, or {most_bytes >> 20:,} MB "
                "of all. Send this one again when a response has ended.",
                retry_after_seconds=RETRY_SECONDS,
            )
        if create.lane not in self._lanes and len(self._lanes.keys() - {None, create.lane}) >= MOST_LANES:
            raise InvalidRequest(
                f"stream_id: this WebSocket has {MOST_LANES} of them already. Use one of those, or open another "
                "WebSocket.",
                param="stream_id",
                code="websocket_stream_limit_reached",
            )
        lane = self._lanes.setdefault(create.lane, _Lane(create.lane))
        load.buffered_bytes += len(create.body)
        lane.waiting.append(create)
        if lane.task is None:
            lane.task = asyncio.create_task(self._answer_all(lane))

    def _release(self, create: Create) -> None:
        self._all.load.buffered_bytes -= len(create.body)

    async def _answer_all(self, lane: _Lane) -> None:
        try:
            while lane.waiting:
                async with self._places:
                    if lane.waiting:  # otherwise they were given up meanwhile
                        create = lane.waiting.popleft()
                        self._release(create)
                        await self._answer(lane, create)
        except Exception:
            log.exception("a response over a WebSocket failed")
            self._end(_FAILED)
        finally:
            lane.task = None

    async def _answer(self, lane: _Lane, create: Create) -> None:
        asked = create.asked.previous_response_id
        before = None if create.asked.conversation is not None else self._all.turns.find(self._name, asked)
        turn = turn_of(create.asked, before)

        def ended(response: bytes | None) -> None:
            """Before the client hears of it: it may continue at once in another lane."""
            if response is not None:
                self._remember(lane, turn, response)
            elif asked == lane.latest:
                self._forget(lane)

        try:
            if before is not None and before.previous is None:  # otherwise who keeps that one knows of its calls
                require_calls([before.items], bytes(create.asked.input))
            body = posted_body(create, None if before is None else turn)
            if create.is_warm_up:
                await self._warm_up(create, turn, ended)
                return
        except BreakevenError as error:
            ended(None)
            await self._tell(error_message(error, create.lane))
            return
        post = Post(self._scope, body, create.lane, self._tell, ended, self._leaving, lambda: self._is_gone)
        await self._all.posts(post.scope, post.receive, post.send)

    async def _warm_up(self, create: Create, turn: SocketTurn | None, ended: Callable[[bytes | None], None]) -> None:
        """Raises RequestError."""
        key = self._all.key_of(self._scope)
        require_model_access(key)
        await self._all.admit(key)
        if turn is None:
            raise InvalidRequest("generate: false takes `input` without a `conversation`.", param="generate")
        response, messages = warm_response(create)
        ended(response)
        for message in messages:
            await self._tell(message)

    def _remember(self, lane: _Lane, turn: SocketTurn | None, response: bytes) -> None:
        self._forget(lane)
        fields = decode_object(response) or {}
        name = fields.get("id")
        if turn is None or not isinstance(name, str) or fields.get("store") is True:  # stored, whoever stores it
            return
        if (whole := answered(turn, response)) is not None:
            lane.latest = name
            self._all.turns.keep(self._name, name, whole, owner=self._owner)

    def _forget(self, lane: _Lane) -> None:
        if lane.latest is not None:
            self._all.turns.forget(self._name, lane.latest)
            lane.latest = None

    async def _tell(self, message: bytes) -> None:
        if self._is_gone:
            return
        try:
            await self._send({"type": "websocket.send", "text": message.decode("utf-8", "replace")})
        except OSError:  # servers raise it once the client has gone
            self._is_gone = True


async def _decline(error: BreakevenError, send: Send) -> None:
    """An HTTP response instead of a WebSocket."""
    named = {"content-type": "application/json", "x-request-id": new_request_id(), **headers_of(error)}
    headers = [(name.encode(), value.encode("latin-1", "replace")) for name, value in named.items()]
    await send({"type": "websocket.http.response.start", "status": status_of(error), "headers": headers})
    await send({"type": "websocket.http.response.body", "body": body_of(error)})


def _is_closing() -> Overloaded:
    return Overloaded("This WebSocket is being closed: open another one.", retry_after_seconds=RETRY_SECONDS)


def _time_is_over(seconds: float) -> InvalidRequest:
    return InvalidRequest(
        f"A WebSocket is open for at most {seconds / 60:g} minutes. Open another one to continue.",
        code="websocket_connection_limit_reached",
    )
