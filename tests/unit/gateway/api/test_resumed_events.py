"""Streams that are fetched again: the head comes at once, and a tenant's are limited."""

import asyncio
from collections.abc import AsyncGenerator

import pytest
from starlette.types import Message

from gateway.api.resumed_events import Readers, ResumedEvents
from gateway.errors import RateLimitExceeded

TENANT = "team:red"


async def test_the_head_comes_before_the_first_event_and_who_left_takes_no_place() -> None:
    readers, sent, has_left = Readers(most=1), list[Message](), asyncio.Event()

    async def silent() -> AsyncGenerator[bytes]:
        await asyncio.Event().wait()
        yield b""

    async def receive() -> Message:
        await has_left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    readers.require_place(TENANT)
    task = asyncio.create_task(ResumedEvents(silent(), readers, TENANT)({"type": "http"}, receive, send))
    while len(sent) < 2:
        await asyncio.sleep(0)
    assert (sent[0]["status"], sent[1]["body"][:1]) == (200, b":")
    with pytest.raises(RateLimitExceeded, match="1 streams already"):
        readers.require_place(TENANT)
    readers.require_place("team:blue")
    has_left.set()
    await task
    readers.require_place(TENANT)
