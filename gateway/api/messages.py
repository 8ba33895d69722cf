"""Anthropic's `/v1/messages` in front of any backend: the request as a chat completion, its chunks as events."""

from collections.abc import Mapping
from typing import Any

import msgspec
from fastapi import APIRouter, Request
from pydantic import BaseModel
from starlette.types import Send

from backends.messages_endpoint_events import MessagesEventWriter, error_event, message_from_answer, messages_error
from backends.messages_endpoint_format import InvalidMessages, chat_body_from_messages
from backends.protocol import Chunk, Operation
from gateway.api.openai_errors import status_of
from gateway.api.token_path import AsgiCaller, TokenPath, credential_of
from gateway.errors import BreakevenError, InvalidRequest
from gateway.pipeline import Pipeline
from gateway.request_view import parse_request

PATH = "/v1/messages"
STREAM = "text/event-stream"


class MessagesCaller(AsgiCaller):
    """Speaks Anthropic's format to whoever asked; the pipeline speaks OpenAI's to this."""

    def __init__(self, send: Send) -> None:
        super().__init__(send)
        self.input_tokens = 0
        self._model = ""
        self._message_id = ""
        self._writer: MessagesEventWriter | None = None

    async def start(self, *, status: int, content_type: str, headers: Mapping[str, str]) -> None:
        self._model = headers.get("x-breakeven-model", "")
        self._message_id = f"msg_{headers.get('x-breakeven-request-id', '')}"
        if status == 200 and content_type.startswith(STREAM):
            self._writer = MessagesEventWriter(
                message_id=self._message_id, model=self._model, input_tokens=self.input_tokens
            )
        await super().start(status=status, content_type=content_type, headers=headers)

    async def send(self, payload: bytes, *, chunk: Chunk | None = None, is_last: bool = False) -> None:
        if self._writer is not None:
            events = self._writer.write(chunk) if chunk is not None else self._ending(payload)
            await super().send(events, chunk=chunk, is_last=is_last)
        elif chunk is not None:
            whole = message_from_answer(payload, chunk.usage, message_id=self._message_id, model=self._model)
            await super().send(whole, chunk=chunk, is_last=is_last)
        else:
            await super().send(payload, is_last=is_last)

    def _ending(self, payload: bytes) -> bytes:
        """An ending of our own: a broken stream's error, or the `length` of a spent budget."""
        assert self._writer is not None
        first = payload.split(b"\n", 1)[0].removeprefix(b"data: ")
        said: dict[str, Any] = msgspec.json.decode(first)
        if "error" in said:
            return error_event(502, str(said["error"]["message"]))
        ended = self._writer.write(Chunk(b"", finish_reason="length"))
        return ended + self._writer.write(Chunk(b"", is_done=True))


class MessagesPath(TokenPath):
    """ASGI application for `/v1/messages`."""

    def _caller(self, send: Send) -> AsgiCaller:
        return MessagesCaller(send)

    def _operation(self, path: str) -> Operation:
        return "chat.completions"

    def _body(self, body: bytes, caller: AsgiCaller) -> bytes:
        chat = chat_body(body)
        if isinstance(caller, MessagesCaller):
            caller.input_tokens = parse_request("chat.completions", chat).input_tokens
        return chat

    def _error(self, error: BreakevenError) -> bytes:
        return messages_error(status_of(error), str(error))


class TokenCount(BaseModel):
    """An estimate: the model is not chosen yet, and with it the tokenizer."""

    input_tokens: int


def build_messages_router(pipeline: Pipeline) -> APIRouter:
    """`/v1/messages/count_tokens`."""
    router = APIRouter(tags=["models"])

    @router.post(f"{PATH}/count_tokens")
    async def count_tokens(request: Request) -> TokenCount:  # pyright: ignore[reportUnusedFunction]
        """About how many input tokens a message has."""
        pipeline.keys.authenticate(credential_of(request.scope["headers"]), pipeline.now_us())
        body = await request.body()
        try:
            fields = {"max_tokens": 1, **msgspec.json.decode(body, type=dict[str, Any])}
        except msgspec.DecodeError as error:
            raise InvalidRequest(f"The body is not valid JSON: {error}.") from error
        return TokenCount(
            input_tokens=parse_request("chat.completions", chat_body(msgspec.json.encode(fields))).input_tokens
        )

    return router


def chat_body(body: bytes) -> bytes:
    """Raises InvalidRequest naming the field."""
    try:
        return chat_body_from_messages(body)
    except InvalidMessages as error:
        raise InvalidRequest(str(error), param=error.param) from error
