"""One function for each parser of bytes from outside. It returns normally unless there is a fault.

The first byte of an input says how it is cut into pieces, which must never change what is read.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, get_args

from starlette.types import Message

from backends.endpoints.content_embeddings import embedding_body
from backends.endpoints.content_events import ContentEventWriter, ContentHead, content_from_answer
from backends.endpoints.content_format import chat_from_content
from backends.endpoints.messages_events import MessagesEventWriter, OpenBlock, message_from_answer
from backends.endpoints.messages_format import chat_body_from_messages
from backends.endpoints.responses_events import ResponsesEventWriter, response_from_answer
from backends.endpoints.responses_format import chat_body_from_responses
from backends.endpoints.responses_items import ResponseHead
from backends.errors import BackendError, UpstreamRejected, UpstreamUnavailable
from backends.formats.anthropic import AnthropicStreamReader, read_message
from backends.formats.anthropic_messages import NativeMessagesReader, read_native_message
from backends.formats.anthropic_request import build_messages_body
from backends.formats.chat_chunks import Head
from backends.formats.chat_view import parse_chat
from backends.formats.form_splice import NotAForm, find_fields, splice_form
from backends.formats.gemini import GeminiStreamReader, build_content_body, read_content
from backends.formats.gemini_contents import NativeContentReader, native_body, read_native_content
from backends.formats.json_splice import NotAnObject
from backends.formats.media import MediaAsked
from backends.formats.media import read_answer as read_media
from backends.formats.media_events import MediaStreamReader, SpeechEventReader
from backends.formats.openai import OpenAIStreamReader, read_answer
from backends.formats.openai_request import build_body
from backends.formats.rerank import RerankAsked
from backends.formats.rerank import read_answer as read_ranking
from backends.formats.responses import ResponsesStreamReader, read_response
from backends.formats.responses_chat import ChatOfResponseReader, read_response_as_chat
from backends.formats.responses_request import build_response_body
from backends.http.http1_connection import Http1Connection
from backends.http.reply import StreamReader
from backends.http.sse import EventTooLarge, SseParser
from backends.protocol import JSON, Call, Chunk, Operation
from backends.unasked_streams import as_one_chat, as_one_response
from gateway.api.token_path import read_body
from gateway.errors import BodyTooLarge, InvalidRequest
from gateway.request.content_view import limited_to
from gateway.request.run import Incoming
from gateway.request.view_of import view_of
from tests.fuzzing import seeds
from tests.read_stream import read_stream

LARGEST: Final = 2048
DRAWING, LISTENING, SPEAKING = (
    Call(operation, "m", b"{}", True, "r") for operation in ("images.edits", "audio.transcriptions", "audio.speech")
)
RANKING: Final = Call("rerank", "m", b"{}", False, "r")
READERS: Final[Mapping[str, Callable[[], StreamReader]]] = {
    "openai": lambda: OpenAIStreamReader("fuzz", wants_usage_chunk=True),
    "anthropic": lambda: AnthropicStreamReader("fuzz", wants_usage_chunk=True, created=0),
    "native messages": lambda: NativeMessagesReader("fuzz"),
    "native gemini": lambda: NativeContentReader("fuzz", "m"),
    "gemini": lambda: GeminiStreamReader("fuzz", wants_usage_chunk=True, unnamed=Head("a", "m", 0)),
    "responses": lambda: ResponsesStreamReader("fuzz"),
    "responses as chats": lambda: ChatOfResponseReader("fuzz", wants_usage_chunk=True),
    "images": lambda: MediaStreamReader(DRAWING, backend="fuzz"),
    "transcripts": lambda: MediaStreamReader(LISTENING, backend="fuzz"),
    "speech": lambda: SpeechEventReader(SPEAKING, backend="fuzz"),
}
ANSWERS: Final[Sequence[Callable[[bytes], Chunk]]] = (
    partial(read_answer, backend="fuzz"),
    partial(read_message, backend="fuzz", created=0),
    partial(read_native_message, backend="fuzz"),
    partial(read_content, backend="fuzz", unnamed=Head("a", "m", 0)),
    partial(read_native_content, backend="fuzz", model="m"),
    partial(read_response, backend="fuzz"),
    lambda body: read_answer(as_one_chat(body), backend="fuzz"),
    lambda body: read_response(as_one_response(body), backend="fuzz"),
    partial(read_response_as_chat, backend="fuzz"),
    partial(read_media, asked=MediaAsked(b"", "json"), call=DRAWING, backend="fuzz"),
    partial(read_media, asked=MediaAsked(b"", "text"), call=LISTENING, backend="fuzz"),
    partial(read_media, asked=MediaAsked(b"", "captions"), call=LISTENING, backend="fuzz"),
    partial(read_ranking, asked=RerankAsked(b"", 3, 2, [b"{}"] * 3), call=RANKING, backend="fuzz"),
)


def cut(data: bytes) -> tuple[bytes, list[bytes]]:
    """The input proper, and the same in pieces."""
    size, rest = (data[0] % 64 + 1 if data else 1), data[1:]
    return rest, [rest[start : start + size] for start in range(0, len(rest), size)]


def events(data: bytes) -> None:
    """Server-sent events: the same ones however they are cut, and no byte of data that was not sent."""

    def read(pieces: Sequence[bytes]) -> tuple[list[bytes], str]:
        parser, found = SseParser(max_event_bytes=LARGEST), list[bytes]()
        try:
            for piece in pieces:
                found += parser.receive(piece)
            return found + parser.finish(), ""
        except EventTooLarge:
            return found, "too large"

    whole, pieces = cut(data)
    found, ending = read([whole])
    again, other_ending = read(pieces)
    assert ending or other_ending or found == again
    assert all(line in whole for event in found for line in event.split(b"\n"))


def streams(data: bytes) -> None:
    """Every format's reader, and what translates its chunks: chunks or a BackendError, the same however it is cut."""
    whole, pieces = cut(data)
    for make in READERS.values():
        found, ending = read_stream(make(), [whole])
        assert read_stream(make(), pieces) == (found, ending)
        assert ending != "done" or found[-1].is_done
    for chunk in (native := read_stream(READERS["native messages"](), [whole])[0]):
        name, _, said = chunk.payload.partition(b"\ndata: ")
        assert name.startswith(b"event: ")
        assert all(word in whole for word in said.strip().split(b" ")), "an event's data is what was sent"
    block = OpenBlock()
    for chunk in native:
        block.note(chunk.payload)
    block.close()
    chat = read_stream(READERS["openai"](), [whole])[0]
    messages = MessagesEventWriter(message_id="m", model="m", input_tokens=1)
    responses = ResponsesEventWriter(ResponseHead("r", 0, {}), now=lambda: 0)
    content = ContentEventWriter(ContentHead("r", "m", shows_thoughts=True, wrapping="json"))
    for chunk in chat:
        messages.write(chunk)
        content.write(chunk)
        responses.write(chunk)


def answers(data: bytes) -> None:
    """Whole answers of every format, and their translations."""
    for read in ANSWERS:
        try:
            chunk = read(data)
        except BackendError:
            continue
        assert chunk.is_done
    try:
        chunk = read_answer(data, backend="fuzz")
    except BackendError:
        return
    content_from_answer(chunk.payload, chunk.usage, ContentHead("r", "m"))
    message_from_answer(chunk.payload, chunk.usage, message_id="m", model="m")
    response_from_answer(chunk.payload, chunk.usage, ResponseHead("r", 0, {}), now=0)


def bodies(data: bytes) -> None:
    """Callers' bodies of JSON: seen or refused by name; said in another format or refused."""
    for operation in get_args(Operation):
        try:
            view_of(Incoming(operation, None, data, content_type=JSON))
        except InvalidRequest:
            continue
    call = Call("chat.completions", "m", data, True, "r")
    _said(lambda: build_body(call))
    _said(lambda: build_response_body(call, backend="fuzz", models_think=True))
    _said(lambda: build_messages_body(parse_chat(data), call))
    _said(lambda: build_content_body(parse_chat(data), "m"))
    _said(lambda: _as_chat(chat_from_content(data, model="m", is_stream=False, takes_effort=True).body))
    _said(lambda: embedding_body(data, model="m", is_batch=True))
    _refused(lambda: native_body(data, counts=False, model="m"))
    _refused(lambda: limited_to(data, 5))
    for translate in (chat_body_from_messages, chat_body_from_responses):
        _said(lambda translate=translate: _as_chat(translate(data)))


def forms(data: bytes) -> None:
    """A caller's form: seen or refused by name; with another model in it every other byte and field is what it was."""
    for operation in ("images.edits", "audio.transcriptions"):
        try:
            view_of(Incoming(operation, None, data, content_type=seeds.FORM_TYPE))
        except InvalidRequest:
            continue
    try:
        before = find_fields(data, seeds.FORM_TYPE)
        spliced = splice_form(data, seeds.FORM_TYPE, {"model": "m"})
    except NotAForm:
        return
    after = find_fields(spliced, seeds.FORM_TYPE)
    had = [(one.name, data[one.start : one.end]) for one in before]
    has = [(one.name, spliced[one.start : one.end]) for one in after]
    named = [place for place, one in enumerate(before) if one.name == "model" and not one.is_file]
    if not named:
        assert has == [("model", b"m"), *had]
    else:
        assert has == [("model", b"m") if place in named else one for place, one in enumerate(had)]


def _as_chat(body: bytes) -> object:
    return build_messages_body(parse_chat(body), Call("chat.completions", "m", body, False, "r"))


def _said(say: Callable[[], object]) -> None:
    try:
        say()
    except UpstreamRejected:
        return


def _refused(say: Callable[[], object]) -> None:
    try:
        say()
    except NotAnObject:
        return


def http(data: bytes) -> None:
    """An upstream's HTTP: a whole answer, or UpstreamUnavailable; the same however it is cut."""
    whole, pieces = cut(data)
    assert _LOOP.run_until_complete(_exchange([whole])) == _LOOP.run_until_complete(_exchange(pieces))


class _Wire(asyncio.Transport):
    """A transport that discards everything."""

    def __init__(self) -> None:
        super().__init__()
        self.is_cut = False

    def write(self, data: Any) -> None:
        del data

    def abort(self) -> None:
        self.is_cut = True

    def pause_reading(self) -> None:
        return None

    def resume_reading(self) -> None:
        return None


async def _exchange(pieces: Sequence[bytes]) -> tuple[int, bytes] | None:
    wire, connection = _Wire(), Http1Connection("fuzz", lambda _: None, set())
    connection.connection_made(wire)
    asked = asyncio.ensure_future(connection.exchange(b"GET / HTTP/1.1\r\n\r\n", None, _LOOP.time() + 600))
    await asyncio.sleep(0)
    for piece in pieces:
        if not wire.is_cut:
            connection.data_received(piece)
    connection.connection_lost(None)
    try:
        response = await asked
        found = b""
        while piece := await response.read():
            found += piece
    except UpstreamUnavailable:
        return None
    return response.status, found


def requests(data: bytes) -> None:
    """A caller's body off the socket: every byte, or BodyTooLarge."""
    whole, pieces = cut(data)
    messages: list[Message] = [{"type": "http.request", "body": piece, "more_body": True} for piece in pieces]
    messages.append({"type": "http.request", "body": b"", "more_body": False})
    left = iter(messages)

    async def receive() -> Message:
        return next(left)

    try:
        assert _LOOP.run_until_complete(read_body(b"", receive, LARGEST)) == whole
    except BodyTooLarge:
        assert len(whole) > LARGEST


_LOOP: Final = asyncio.new_event_loop()


@dataclass(frozen=True, slots=True)
class Target:
    """`seeds` are inputs to begin with."""

    run: Callable[[bytes], None]
    seeds: Sequence[bytes]


def _pieced(found: Sequence[bytes]) -> list[bytes]:
    return [b"\x06" + seed for seed in found]


TARGETS: Final[Mapping[str, Target]] = {
    "events": Target(events, _pieced(seeds.STREAMS)),
    "streams": Target(streams, _pieced(seeds.STREAMS)),
    "answers": Target(answers, seeds.ANSWERS),
    "bodies": Target(bodies, seeds.BODIES),
    "forms": Target(forms, seeds.FORMS),
    "http": Target(http, _pieced(seeds.HTTP)),
    "requests": Target(requests, _pieced(seeds.BODIES)),
}
