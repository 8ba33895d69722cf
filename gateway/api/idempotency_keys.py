"""Idempotency keys over ASGI: converts between ASGI messages and the sinks of kept_answers/idempotency.py."""

import asyncio

from starlette.types import Message, Send

from gateway.kept_answers.idempotency import Headers, Sink

KEY_HEADER = b"idempotency-key"


def idempotency_key(headers: list[tuple[bytes, bytes]]) -> str | None:
    """The request's idempotency key, if it has one."""
    return next((value.decode("utf-8", "replace") for name, value in headers if name == KEY_HEADER), None)


def as_send(sink: Sink, ended: asyncio.Event) -> Send:
    """An ASGI `send` whose messages go into `sink`. Sets `ended` with the last one."""

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            await sink.start(message["status"], message.get("headers", ()))
        else:
            is_last = not message.get("more_body", False)
            await sink.send(message.get("body", b""), is_last=is_last)
            if is_last:
                ended.set()

    return send


class SendSink:
    """A sink that writes to an ASGI `send`."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.is_started = False

    async def start(self, status: int, headers: Headers) -> None:
        self.is_started = True
        await self._send({"type": "http.response.start", "status": status, "headers": list(headers)})

    async def send(self, body: bytes, *, is_last: bool) -> None:
        await self._send({"type": "http.response.body", "body": body, "more_body": not is_last})
