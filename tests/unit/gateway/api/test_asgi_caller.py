"""When a caller that leaves ends the work on its request, and what one hears who waits."""

import asyncio

import pytest
from starlette.types import Message

from gateway.api.asgi_caller import HEARTBEAT_SECONDS, PIECE_BYTES, AsgiCaller, while_connected
from gateway.api.gemini import ContentCaller, ListCaller
from gateway.api.messages import MessagesCaller
from tests.virtual_time import run


async def test_the_end_of_an_answer_is_waited_for_no_longer_than_is_said() -> None:
    """The caller has left, and the provider's usage report never arrives."""

    async def send(message: object) -> None:
        del message

    caller, said = AsgiCaller(send), asyncio.Event()

    async def leave() -> Message:
        await said.wait()
        return {"type": "http.disconnect"}

    async def serve() -> None:
        caller.outlive(0.01)
        said.set()
        await asyncio.Event().wait()

    async with asyncio.timeout(60):
        await while_connected(serve(), caller, {}, leave)
    assert caller.is_gone


@pytest.mark.parametrize(
    ("kind", "heard"),
    [
        (AsgiCaller, b": still here\n\n"),
        (MessagesCaller, b'event: ping\ndata: {"type": "ping"}\n\n'),
        (ContentCaller, b"\n\n"),
        (ListCaller, b""),
    ],
)
def test_a_heartbeat_is_what_the_clients_of_the_format_skip(kind: type[AsgiCaller], heard: bytes) -> None:
    """google-genai 3.6 and go-genai 1.71 fail at a comment; Claude Code gives up where no event comes."""

    async def go() -> None:
        sent: list[bytes] = []

        async def send(message: Message) -> None:
            if message["type"] == "http.response.body":
                sent.append(message["body"])

        caller = kind(send)
        await caller.start(status=200, content_type="text/event-stream", headers={})
        await caller.send(b"data: {}\n\n")
        del sent[:]
        await asyncio.sleep(16)
        caller.close()
        assert b"".join(sent) == heard

    run(go)


def test_no_heartbeat_follows_an_end_that_came_in_the_same_turn_of_the_loop() -> None:
    """Uvicorn raises then, and nobody awaits it: the log had a traceback."""

    async def go() -> None:
        sent: list[bytes] = []

        async def send(message: Message) -> None:
            if message["type"] == "http.response.body":
                sent.append(message["body"])

        caller, ended = AsgiCaller(send), asyncio.Event()

        async def end() -> None:
            await caller.send(b"data: [DONE]\n\n", is_last=True)
            ended.set()

        ending: list[asyncio.Task[None]] = []
        asyncio.get_running_loop().call_later(HEARTBEAT_SECONDS, lambda: ending.append(asyncio.create_task(end())))
        await caller.start(status=200, content_type="text/event-stream", headers={})
        await caller.send(b"data: {}\n\n")
        await ended.wait()
        await asyncio.sleep(1)
        assert sent == [b"data: {}\n\n", b"data: [DONE]\n\n"]

    run(go)


def test_a_picture_is_written_piece_by_piece_and_no_heartbeat_comes_into_it() -> None:
    """Twenty of 40 MB at once took 2.6 GB: what writes them copies what it is given, whole."""

    async def go() -> None:
        sent: list[bytes] = []

        async def send(message: Message) -> None:
            if message["type"] == "http.response.body":
                await asyncio.sleep(30 if message["body"] == AsgiCaller.heartbeat else 20)  # a slow caller
                sent.append(message["body"])

        caller, picture = AsgiCaller(send), b"data: " + b"x" * (3 * PIECE_BYTES) + b"\n\n"
        await caller.start(status=200, content_type="text/event-stream", headers={})
        await caller.send(picture)
        assert [len(piece) for piece in sent] == [PIECE_BYTES] * 3 + [8]
        assert b"".join(sent) == picture
        await asyncio.sleep(16)
        await caller.send(picture)  # while a heartbeat waits to be written
        assert b"".join(sent) == picture + AsgiCaller.heartbeat + picture
        caller.close()

    run(go)
