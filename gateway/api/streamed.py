"""Streamed answers: a failure before the first byte becomes an error response, a later one breaks the connection."""

import logging
from collections.abc import AsyncIterator
from typing import TypeVar

from fastapi.responses import StreamingResponse
from starlette.types import Send

from gateway.errors import BreakevenError

log = logging.getLogger(__name__)
T = TypeVar("T")


class Streamed(StreamingResponse):
    """If it breaks off, the connection is closed early, so that nobody takes the answer for complete."""

    async def stream_response(self, send: Send) -> None:
        try:
            await super().stream_response(send)
        except BreakevenError as error:
            log.warning("an answer that had begun was cut off: %s", error)


async def begun(parts: AsyncIterator[T]) -> AsyncIterator[T]:
    """The same parts. A failure before the first part is raised here."""
    first = await anext(parts, None)

    async def all_of_it() -> AsyncIterator[T]:
        if first is not None:
            yield first
        async for part in parts:
            yield part

    return all_of_it()
