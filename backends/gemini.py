"""Adapter for Gemini's generateContent API; chat calls only, translated."""

from collections.abc import Mapping
from functools import partial
from urllib.parse import quote

from backends.formats.chat_fields import untranslatable
from backends.formats.chat_view import parse_chat
from backends.formats.gemini import GeminiStreamReader, build_content_body, openai_error, read_content
from backends.http.errors import google_status
from backends.http_backend import Exchange, HttpBackend, answers_ok, join_url
from backends.protocol import BackendHealth, Call, Reply


class GeminiBackend(HttpBackend):
    """One endpoint; `base_url` includes the version, as in `https://generativelanguage.googleapis.com/v1beta`."""

    def __init__(
        self,
        name: str,
        base_url: str,
        api_key: str | None,
        *,
        provider: str = "gemini",
        extra_headers: Mapping[str, str] | None = None,
    ) -> None:
        headers = {"x-goog-api-key": api_key} if api_key else {}
        super().__init__(name, base_url, headers, extra_headers=extra_headers)
        self.provider = provider

    async def open(self, call: Call) -> Reply:
        if call.operation != "chat.completions":
            raise untranslatable("operation", f"{self.name} does not offer {call.operation}")
        method = "streamGenerateContent?alt=sse" if call.is_stream else "generateContent"
        created, answer_id = int(self._now().timestamp()), call.request_id
        exchange = Exchange(
            url=join_url(self._base_url, f"models/{quote(call.upstream_model, safe='')}:{method}"),
            headers=self._headers,
            body=build_content_body(parse_chat(call.body)),
            read_answer=partial(read_content, backend=self.name, answer_id=answer_id, created=created),
            stream_reader=partial(
                GeminiStreamReader,
                self.name,
                wants_usage_chunk=call.wants_usage_chunk,
                answer_id=answer_id,
                created=created,
            ),
            translate_error=openai_error,
            true_status=google_status,
        )
        return await self.exchange(call, exchange)

    async def health(self) -> BackendHealth:
        return await self.probe(join_url(self._base_url, "models"), self._headers, answers_ok)
