"""Gives a backend the Responses endpoint that its wire format lacks: asked as a chat, answered in items and events."""

import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace

import msgspec

from backends.json_objects import decode_object
from backends.protocol import Backend, BackendHealth, Call, Chunk, Reply
from backends.responses_endpoint_events import ResponseHead, ResponsesEventWriter, response_from_answer
from backends.responses_endpoint_format import chat_body_from_responses


class TranslatingBackend:
    """A backend around another one. `now` is Unix seconds, for the date that a response carries."""

    def __init__(self, inner: Backend, *, now: Callable[[], float] = time.time) -> None:
        self._inner = inner
        self._now = now

    @property
    def name(self) -> str:
        return self._inner.name

    @property
    def is_simulated(self) -> bool:
        return self._inner.is_simulated

    async def open(self, call: Call) -> Reply:
        if call.operation != "responses":
            return await self._inner.open(call)
        body = chat_body_from_responses(call.body)
        chat = replace(call, operation="chat.completions", body=body, wants_usage_chunk=False)
        head = ResponseHead(f"resp_{call.request_id}", int(self._now()), decode_object(call.body) or {})
        return _ResponsesReply(await self._inner.open(chat), head, is_stream=call.is_stream)

    async def health(self) -> BackendHealth:
        return await self._inner.health()

    async def aclose(self) -> None:
        await self._inner.aclose()


class _ResponsesReply:
    """A chat reply, every chunk's payload in the other format and everything that is metered as it was."""

    def __init__(self, inner: Reply, head: ResponseHead, *, is_stream: bool) -> None:
        self._inner = inner
        self._head = head
        self._is_stream = is_stream

    @property
    def content_type(self) -> str:
        return self._inner.content_type

    async def __aiter__(self) -> AsyncGenerator[Chunk]:
        writer = ResponsesEventWriter(self._head) if self._is_stream else None
        async for chunk in self._inner:
            if writer is None:
                payload = response_from_answer(chunk.payload, chunk.usage, self._head)
            else:
                payload = writer.write(chunk)
            yield msgspec.structs.replace(chunk, payload=payload)

    async def aclose(self) -> None:
        await self._inner.aclose()
