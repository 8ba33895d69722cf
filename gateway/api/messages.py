"""Anthropic's endpoints: bodies and events pass unchanged; errors, and streams that we end, follow its format."""

from typing import ClassVar

from starlette.types import Scope, Send

from backends.endpoints.messages_events import OpenBlock
from backends.protocol import Chunk, Operation
from gateway.api.asgi_caller import AsgiCaller
from gateway.api.token_path import TokenPath
from gateway.errors import BreakevenError
from gateway.openai_errors import messages_body_of

ENDPOINTS: dict[str, Operation] = {
    "/v1/messages": "messages",
    "/v1/messages/count_tokens": "messages.count_tokens",
}


class MessagesCaller(AsgiCaller):
    """When the gateway itself ends a stream, it first closes the content block that the upstream left open.

    Its heartbeats are Anthropic's: clients that give up on a silent stream count events only, not comments.
    """

    heartbeat: ClassVar[bytes] = b'event: ping\ndata: {"type": "ping"}\n\n'

    def __init__(self, send: Send) -> None:
        super().__init__(send)
        self._open = OpenBlock()

    async def send(self, payload: bytes, *, chunk: Chunk | None = None, is_last: bool = False) -> None:
        if chunk is None:
            payload = self._open.close() + payload
        else:
            self._open.note(payload)
        await super().send(payload, chunk=chunk, is_last=is_last)


class MessagesPath(TokenPath):
    """ASGI application for the endpoints of `ENDPOINTS`."""

    endpoints = ENDPOINTS

    def _caller(self, send: Send, scope: Scope) -> AsgiCaller:
        return MessagesCaller(send)

    def _error(self, error: BreakevenError, request_id: str) -> bytes:
        return messages_body_of(error, request_id)
