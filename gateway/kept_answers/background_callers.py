"""Who hears the answer of a request in the background: nobody, or a stream whose events are kept as they are sent."""

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Final, Protocol

import msgspec

from backends.formats.json_objects import decode_object, text_of
from backends.formats.json_splice import NotAnObject, find_members, splice
from backends.formats.responses import ENDS
from backends.protocol import EVENT_STREAM, JSON, Chunk
from gateway.errors import BreakevenError, StoreDown
from gateway.kept_answers.keeping_caller import in_background
from gateway.kept_answers.kept_events import EventWriter
from gateway.kept_answers.open_responses import FAILED, Open, OpenResponses, Outcome
from gateway.process.tasks import end_tasks
from gateway.request.answer_parts import id_header
from gateway.request.run import Caller

_OK: Final = 200
_CREATED: Final = "response.created"
_BEGUN: Final = (_CREATED, "response.queued")
_INCOMPLETE: Final = "response.incomplete"


class Hearer(Caller, Protocol):
    """Takes the answer. `outcome` and `why` are what becomes of the response if no answer is kept."""

    outcome: Outcome
    why: BreakevenError | None

    async def begin(self, response: Open) -> None:
        """Tells the caller of the unfinished response. Nothing of the answer is taken before: the unfinished response
        was not kept yet, and would replace it."""
        ...

    async def end(self, document: bytes) -> None:
        """`document` is what became of the response, unless its answer has said so."""
        ...


class Nobody:
    """The caller is told of the unfinished response, and nothing more."""

    is_gone = False

    def __init__(self, caller: Caller) -> None:
        self.outcome: Outcome = "failed"
        self.why: BreakevenError | None = None
        self._caller = caller
        self._is_expected = asyncio.Event()

    def outlive(self, seconds: float | None = None) -> None: ...

    async def begin(self, response: Open) -> None:
        self._is_expected.set()
        payload = response.document("in_progress")
        await self._caller.start(status=_OK, content_type=JSON, headers=_headers(response))
        await self._caller.send(payload, chunk=Chunk(payload, is_done=True), is_last=True)

    async def start(self, *, status: int, content_type: str, headers: Mapping[str, str]) -> None:
        await self._is_expected.wait()

    async def send(self, payload: bytes, *, chunk: Chunk | None = None, is_last: bool = False) -> None: ...

    async def end(self, document: bytes) -> None: ...


class BackgroundStream:
    """The caller is told of the response at once, and then of each event for as long as it stays. The events are
    numbered here: not all providers do, and one event of ours comes before theirs."""

    is_gone = False

    def __init__(self, caller: Caller, opened: OpenResponses) -> None:
        self.outcome: Outcome = "failed"
        self.why: BreakevenError | None = None
        self._caller = caller
        self._opened = opened
        self._is_expected = asyncio.Event()
        self._has_ended = False
        self._number = 0

    def outlive(self, seconds: float | None = None) -> None: ...

    async def begin(self, response: Open) -> None:
        self._response = response
        is_brief = response.accepted.is_brief
        self._events = self._opened.events(response.tenant, response.response_id, is_brief=is_brief)
        self._writer = EventWriter(self._events)
        self._keeping = asyncio.create_task(self._writer.keep())
        await self._caller.start(status=_OK, content_type=EVENT_STREAM, headers=_headers(response))
        await self._tell_document(_CREATED, response.document("in_progress"))
        await self._writer.write()  # who comes with its id already finds that there are events
        self._is_expected.set()

    async def start(self, *, status: int, content_type: str, headers: Mapping[str, str]) -> None:
        await self._is_expected.wait()

    async def send(self, payload: bytes, *, chunk: Chunk | None = None, is_last: bool = False) -> None:
        for event in payload.split(b"\n\n"):
            name, found, data = event.partition(b"\ndata: ")
            kind = name.removeprefix(b"event: ").decode()
            if not found or kind in _BEGUN:
                continue
            if chunk is None:
                self._note_our_end(kind, data)
            elif not (kind in ENDS and await self._is_unwanted()):
                await self._tell(kind, self._renamed(data), chunk=chunk)

    async def end(self, document: bytes) -> None:
        try:
            if not self._has_ended:
                await self._tell_document(_INCOMPLETE if self.outcome == "incomplete" else FAILED, document)
        finally:
            await end_tasks((self._keeping,))
            await self._writer.finish()
            with contextlib.suppress(StoreDown):
                if not await self._opened.is_kept(self._response):
                    await self._events.forget()

    def _note_our_end(self, kind: str, data: bytes) -> None:
        """An end that no upstream sent. Its caller hears it from `end`, as whoever fetches the response does."""
        if kind == _INCOMPLETE:
            self.outcome = "incomplete"
        elif kind != FAILED:  # which says the same again
            self.why = BreakevenError(text_of(decode_object(data) or {}, "message") or "")

    async def _is_unwanted(self) -> bool:
        """Whoever cancelled it was told so, though the answer came before its writer noticed."""
        with contextlib.suppress(StoreDown):
            return await self._opened.is_unwanted(self._response)
        return False

    def _renamed(self, data: bytes) -> bytes:
        try:
            member = find_members(data).get("response")
        except NotAnObject:  # with a key twice, as its provider wrote it
            data = msgspec.json.encode(decode_object(data) or {})
            member = find_members(data).get("response")
        if member is None:
            return data
        response = in_background(member.of(data), self._response.response_id)
        return data[: member.start] + response + data[member.end :]

    async def _tell_document(self, kind: str, document: bytes) -> None:
        told = {"type": kind, "sequence_number": 0, "response": msgspec.Raw(document)}
        await self._tell(kind, msgspec.json.encode(told), chunk=None)

    async def _tell(self, kind: str, data: bytes, *, chunk: Chunk | None) -> None:
        number, self._number = self._number, self._number + 1
        data = splice(data, {"sequence_number": str(number).encode()})
        event = b"event: " + kind.encode() + b"\ndata: " + data + b"\n\n"
        self._has_ended = kind in ENDS or kind == FAILED
        self._writer.add(number, event, is_end=self._has_ended)
        await self._caller.send(event, chunk=chunk, is_last=self._has_ended)


def _headers(response: Open) -> dict[str, str]:
    return {id_header("responses"): response.accepted.request_id}
