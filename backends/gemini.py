"""Adapter for Gemini's generateContent API: chats are translated, calls in its own format pass through untouched."""

import re
import time
from functools import partial
from typing import Final
from urllib.parse import quote

from msgspec.structs import replace

from backends.endpoints.content_errors import content_error
from backends.errors import UpstreamAuth, UpstreamRejected
from backends.formats.chat_chunks import Head
from backends.formats.chat_fields import untranslatable
from backends.formats.chat_view import parse_chat
from backends.formats.gemini import GeminiStreamReader, build_content_body, openai_error, read_content
from backends.formats.gemini_contents import (
    NativeContentReader,
    native_body,
    read_native_content,
    without_signatures,
)
from backends.formats.input_tokens import read_count
from backends.formats.json_splice import NotAnObject
from backends.formats.past_thinking import UNREADABLE_SIGNATURE
from backends.formats.strict_turns import mended_chat
from backends.http.errors import google_status
from backends.http_backend import Exchange, HttpBackend, answers_ok, join_url
from backends.protocol import CONTENT, COUNT_OF_CONTENT, BackendHealth, Call, Reply

_NAMES_STORED: Final = re.compile(rb"file_?uri|cached_?content|\\u00[4-7]", re.IGNORECASE)
"""Whether a request names a file or a cache. Its names may be spelt with escapes, which nobody needs for letters."""
STREAM: Final = "streamGenerateContent?alt=sse"


class GeminiBackend(HttpBackend):
    """One endpoint; `base_url` includes the version, as in `https://generativelanguage.googleapis.com/v1beta`."""

    def __init__(self, name: str, base_url: str, api_key: str | None) -> None:
        super().__init__(name, base_url, {"x-goog-api-key": api_key} if api_key else {})

    async def open(self, call: Call) -> Reply:
        if call.operation in CONTENT:
            return await self._open_native(call)
        if call.operation != "chat.completions":
            raise untranslatable("operation", f"{self.name} does not offer {call.operation}")
        try:
            return await self._open_chat(call)
        except UpstreamRejected as refusal:
            if (kept := mended_chat(call.body, refusal.body)) is None:
                raise
        return await self._open_chat(replace(call, body=kept))

    async def _open_chat(self, call: Call) -> Reply:
        unnamed = Head(call.request_id, call.upstream_model, int(time.time()))
        view = parse_chat(call.body)
        calls_one = view.parallel_tool_calls is False  # Gemini has no such setting
        exchange = Exchange(
            url=self._url(call, STREAM if call.is_stream else "generateContent"),
            headers=self._headers,
            body=build_content_body(view, call.upstream_model),
            read_answer=partial(read_content, backend=self.name, unnamed=unnamed, calls_one=calls_one),
            stream_reader=partial(
                GeminiStreamReader,
                self.name,
                wants_usage_chunk=call.wants_usage_chunk,
                unnamed=unnamed,
                calls_one=calls_one,
            ),
            translate_error=openai_error,
            true_status=google_status,
        )
        return await self.exchange(call, exchange)

    async def exchange(self, call: Call, exchange: Exchange) -> Reply:
        """A file, video or cache that we may not read, or that does not exist, is a 403 at Google. That says nothing
        against our key, which would rest otherwise, for all callers."""
        try:
            return await super().exchange(call, exchange)
        except UpstreamAuth as refusal:
            if refusal.status != 403 or not _NAMES_STORED.search(exchange.body):
                raise
            why = "what the request names by its address may not be there, or not for our key"
            raise UpstreamRejected(f"{refusal.message}: {why}") from refusal

    async def _open_native(self, call: Call) -> Reply:
        """Signatures of another model, or of a conversation that has changed, are left out once they are refused."""
        exchange = self._native(call)
        try:
            return await self.exchange(call, exchange)
        except UpstreamRejected as refusal:
            if (
                not UNREADABLE_SIGNATURE.search(refusal.body)
                or (unsigned := without_signatures(exchange.body)) == exchange.body
            ):
                raise
        return await self.exchange(call, replace(exchange, body=unsigned))

    def _url(self, call: Call, method: str) -> str:
        return join_url(self._base_url, f"models/{quote(call.upstream_model, safe='')}:{method}")

    def _native(self, call: Call) -> Exchange:
        model, counts = call.upstream_model, call.operation == COUNT_OF_CONTENT
        try:
            body = native_body(call.body, counts=counts, model=model)
        except NotAnObject as error:
            raise UpstreamRejected(str(error), body=content_error(400, str(error))) from error
        method = "countTokens" if counts else STREAM if call.is_stream else "generateContent"
        return Exchange(
            url=self._url(call, method),
            headers=self._headers,
            body=body,
            read_answer=partial(read_count, backend=self.name, member="totalTokens")
            if counts
            else partial(read_native_content, backend=self.name, model=model),
            stream_reader=partial(NativeContentReader, self.name, model),
            true_status=google_status,
        )

    async def health(self) -> BackendHealth:
        return await self.probe(join_url(self._base_url, "models"), self._headers, answers_ok)
