"""Deadlines, in virtual time: how long an answer may be silent, and what counts as progress."""

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from backends.errors import StreamBroken, StreamStalled, UnreadableAnswer, UpstreamTimeout, UpstreamUnavailable
from backends.formats.anthropic_messages import NativeMessagesReader
from backends.formats.openai import OpenAIStreamReader
from backends.formats.responses import ResponsesStreamReader
from backends.http.reply import MOST, StreamReply, TimedResponse
from backends.http.stream_reader import StreamReader
from backends.protocol import Chunk, Timeouts
from tests.virtual_time import now, run

EVENT = b'data: {"choices":[{"index":0,"delta":{"content":"w"},"finish_reason":null}]}\n\n'
END = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
BEAT = b": ping\n\n"
HEAD = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}\n\n'
CREATED = b'data: {"type":"response.created","response":{}}\n\n'
SAID = b'data: {"type":"response.output_text.delta","delta":"w"}\n\n'
MESSAGE = b'data: {"type":"message_start","message":{"id":"m"}}\n\n'
BLOCK = b'data: {"type":"content_block_start","index":0,"content_block":{"type":"%b"}}\n\n'
PING = b'data: {"type":"ping"}\n\n'
STOPPED = b'data: {"type":"message_stop"}\n\n'
COMPLETED = b'data: {"type":"response.completed","response":{"status":"completed"}}\n\n'


class Paced:
    """A response whose pieces each arrive after a given number of seconds."""

    status = 200
    headers: Mapping[str, str] = {}
    is_ready = False

    def __init__(self, pieces: Sequence[tuple[float, bytes]]) -> None:
        self._pieces = iter(pieces)
        self._is_closed = asyncio.Event()

    async def read(self) -> bytes:
        pause, piece = next(self._pieces, (0.0, b""))
        try:
            async with asyncio.timeout(pause):
                await self._is_closed.wait()
        except TimeoutError:
            return piece
        raise UpstreamUnavailable("cut")

    def close(self) -> None:
        self._is_closed.set()

    def finish(self) -> None:
        return None


async def collect(
    pieces: Sequence[tuple[float, bytes]],
    *,
    first_byte_seconds: float,
    idle_seconds: float,
    pause: float = 0.0,
    reader: StreamReader | None = None,
) -> list[Chunk]:
    """Reads all chunks, pausing after each."""
    timeouts = Timeouts(first_byte_seconds=first_byte_seconds, idle_seconds=idle_seconds)
    timed = TimedResponse(Paced(pieces), "b", timeouts, now())
    reply = StreamReply(timed, reader or OpenAIStreamReader("b", wants_usage_chunk=False), "b")
    chunks: list[Chunk] = []
    try:
        async for chunk in reply:
            chunks.append(chunk)
            await asyncio.sleep(pause)
    finally:
        await reply.aclose()
    return chunks


def ends_at(
    pieces: Sequence[tuple[float, bytes]], error: type[Exception], *, first_byte_seconds: float, idle_seconds: float
) -> float:
    """The second at which the answer was given up."""

    async def given_up() -> float:
        with pytest.raises(error):
            await collect(pieces, first_byte_seconds=first_byte_seconds, idle_seconds=idle_seconds)
        return now()

    return run(given_up)


def test_a_silent_upstream_is_given_up_at_the_first_bytes_deadline() -> None:
    assert ends_at([(99, EVENT)], UpstreamTimeout, first_byte_seconds=5, idle_seconds=20) == pytest.approx(5)


def test_a_stream_that_falls_silent_stalls() -> None:
    pieces = [(1, EVENT), (1, EVENT), (99, END)]
    assert ends_at(pieces, StreamStalled, first_byte_seconds=5, idle_seconds=2) == pytest.approx(4)


def test_a_drip_of_bytes_that_never_make_an_event_is_a_stall() -> None:
    drip = [(0.1, EVENT), *[(0.1, b"d")] * 200]
    assert ends_at(drip, StreamStalled, first_byte_seconds=5, idle_seconds=2) == pytest.approx(2.1)


def test_heartbeats_keep_an_answer_alive_that_has_begun() -> None:
    pieces = [(0.1, EVENT), *[(1.0, BEAT)] * 40, (1.0, END)]
    assert run(lambda: collect(pieces, first_byte_seconds=5, idle_seconds=2))[-1].is_done


def test_heartbeats_do_not_put_off_the_first_bytes_deadline() -> None:
    beats = [*[(1.0, BEAT)] * 40, (1.0, EVENT), (0.0, END)]
    assert ends_at(beats, UpstreamTimeout, first_byte_seconds=5.5, idle_seconds=2) == pytest.approx(5.5)


@pytest.mark.parametrize(
    ("reader", "pieces"),
    [
        (OpenAIStreamReader("b", wants_usage_chunk=False), [(0.1, HEAD), (4.0, EVENT), (1.0, END)]),
        (ResponsesStreamReader("b"), [(0.1, CREATED), (4.0, SAID), (1.0, COMPLETED)]),
        (NativeMessagesReader("b"), [(0.1, MESSAGE + BLOCK % b"text"), (4.0, BLOCK % b"tool_use"), (1.0, STOPPED)]),
        (NativeMessagesReader("b"), [(0.1, MESSAGE + BLOCK % b"thinking"), *[(1.9, PING)] * 4, (1.0, STOPPED)]),
    ],
)
def test_a_model_may_think_in_silence_after_a_stream_has_told_no_more_than_its_id(
    reader: StreamReader, pieces: Sequence[tuple[float, bytes]]
) -> None:
    """OpenAI's do, for minutes, after `response.created`. Claude's pings tell that it thinks, for longer than that."""
    chunks = run(lambda: collect(pieces, first_byte_seconds=5, idle_seconds=2, reader=reader))
    assert chunks[-1].is_done


def test_a_slow_caller_is_not_a_stalled_upstream() -> None:
    pieces = [(0.5, EVENT), (0.0, EVENT), (1.5, EVENT), (0.0, END)]
    assert run(lambda: collect(pieces, first_byte_seconds=2, idle_seconds=2, pause=9))[-1].is_done


MANY = b'{"a":[' + b"[]," * MOST.containers + b"0]}"


def test_what_is_made_of_millions_of_values_is_no_event_and_no_answer() -> None:
    """16 MB of empty lists took 400 MB and held up everybody for 1.4 seconds."""

    async def whole() -> bytes:
        return await TimedResponse(Paced([(0.0, MANY)]), "b", Timeouts(), now()).read_all(1 << 26)

    with pytest.raises(StreamBroken, match="b sent an event of too many values"):
        run(lambda: collect([(0.0, EVENT), (0.0, b"data: %b\n\n" % MANY)], first_byte_seconds=9, idle_seconds=9))
    with pytest.raises(UnreadableAnswer, match="b answered with too many values"):
        run(whole)
