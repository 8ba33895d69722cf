"""Gemini's endpoints: model and method are part of the path; answers and errors are in Google's format."""

from collections.abc import Mapping
from typing import ClassVar, Final, NamedTuple

import msgspec
from starlette.types import Scope, Send

from backends.endpoints.content_embeddings import embeddings_from_answer
from backends.protocol import EVENT_STREAM, JSON, Chunk, Operation
from gateway.api.asgi_caller import AsgiCaller
from gateway.api.token_path import CONTENT_CALL, TokenPath
from gateway.errors import BreakevenError
from gateway.openai_errors import content_body_of
from gateway.request.run import Incoming

MODELS: Final = "/v1/models"
ENDPOINTS: dict[str, Operation] = {
    f"{MODELS}:generateContent": "generate_content",
    f"{MODELS}:streamGenerateContent": "generate_content",
    f"{MODELS}:countTokens": "generate_content.count_tokens",
    f"{MODELS}:embedContent": "embeddings",
    f"{MODELS}:batchEmbedContents": "embeddings",
}
"""The paths to which other_addresses.py rewrites each call; the model is then in the scope."""
STREAM: Final = f"{MODELS}:streamGenerateContent"
BATCH: Final = f"{MODELS}:batchEmbedContents"
GOOGLES: Final = "breakeven.googles"
"""Scope key, set by other_addresses.py if the path or the key is in Google's form."""
GOOGLES_KEY: Final = b"x-goog-api-key"


class ContentCall(NamedTuple):
    """What the path and query say besides the method. `is_listed`: a stream comes as one JSON list, not as events."""

    model: str = ""
    is_listed: bool = False


class ContentCaller(AsgiCaller):
    """Google's clients for Python and Go take a comment for a broken answer; all skip empty lines."""

    heartbeat: ClassVar[bytes] = b"\n\n"


class ListCaller(AsgiCaller):
    """Turns the events of a stream into the items of one JSON list, the default of Google's API unless events are
    asked for."""

    is_listing = False
    has_items = False

    async def start(self, *, status: int, content_type: str, headers: Mapping[str, str]) -> None:
        self.is_listing = content_type.startswith(EVENT_STREAM)
        await super().start(status=status, content_type=JSON if self.is_listing else content_type, headers=headers)

    async def send(self, payload: bytes, *, chunk: Chunk | None = None, is_last: bool = False) -> None:
        if self.is_listing:
            payload = b"".join(map(self._item, payload.split(b"\n\n")))
            if is_last:
                payload += b"]" if payload or self.has_items else b"[]"
        await super().send(payload, chunk=chunk, is_last=is_last)

    def _item(self, event: bytes) -> bytes:
        if not event:
            return b""
        before, self.has_items = b",\r\n" if self.has_items else b"[", True
        return before + event.removeprefix(b"data: ")


class EmbeddingCaller(AsgiCaller):
    """Translates an answer of OpenAI's embeddings API into Gemini's format."""

    def __init__(self, send: Send, *, is_batch: bool) -> None:
        super().__init__(send)
        self._is_batch = is_batch

    async def send(self, payload: bytes, *, chunk: Chunk | None = None, is_last: bool = False) -> None:
        if chunk is not None:
            payload = embeddings_from_answer(payload, is_batch=self._is_batch)
        await super().send(payload, chunk=chunk, is_last=is_last)


class GeminiPath(TokenPath):
    """ASGI application for the endpoints of `ENDPOINTS`."""

    endpoints = ENDPOINTS

    def _caller(self, send: Send, scope: Scope) -> AsgiCaller:
        path, call = scope["path"], call_of(scope)
        if ENDPOINTS[path] == "embeddings":
            return EmbeddingCaller(send, is_batch=path == BATCH)
        return ListCaller(send) if call.is_listed and path == STREAM else ContentCaller(send)

    def _of_address(self, asked: Incoming, scope: Scope) -> Incoming:
        return msgspec.structs.replace(asked, model=call_of(scope).model, is_stream=scope["path"] == STREAM)

    def _error(self, error: BreakevenError, request_id: str) -> bytes:
        return content_body_of(error, request_id)


def is_googles(scope: Scope) -> bool:
    """Whether one of Google's clients reads the answer, of a path that several providers' clients share."""
    return GOOGLES in scope


def call_of(scope: Scope) -> ContentCall:
    """Empty for a call that did not come through one of Gemini's paths."""
    return scope.get(CONTENT_CALL) or ContentCall()
