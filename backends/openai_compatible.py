"""Adapter for everything that speaks OpenAI's wire format: OpenAI, our engine, vLLM, SGLang, Ollama, DeepSeek, ..."""

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final, Literal

from msgspec.structs import replace as replace_fields

from backends.chat_counts import briefly
from backends.chat_exchanges import ChatExchanges
from backends.dialects import PLAIN, Dialect
from backends.engine_health import (
    parse_engine_health,
    parse_llama_cpp_metrics,
    parse_sglang_metrics,
    parse_vllm_metrics,
)
from backends.errors import Untranslatable, UpstreamRejected
from backends.formats.chat_fields import in_background
from backends.formats.chat_tokens import PATH as TOKENIZE
from backends.formats.chat_tokens import is_text_alone, read_token_count, tokenize_body
from backends.formats.ended_calls import CallsToldReader, with_calls_told
from backends.formats.error_bodies import in_openai_shape
from backends.formats.input_tokens import read_count
from backends.formats.json_objects import decode_object, part_of, text_of, without_escapes
from backends.formats.json_splice import ESCAPE
from backends.formats.openai import OpenAIStreamReader, error_body, read_answer
from backends.formats.openai_request import build_body, with_every_output_of, without_past_reasoning
from backends.formats.refused_fields import (
    OfEffort,
    may_be_repeated,
    of_response_effort,
    refused_field,
    without_refused,
)
from backends.formats.rerank import ask as ask_rerank
from backends.formats.rerank import read_answer as read_ranking
from backends.formats.rerank import rerank_dialect_of, where_another_may_do
from backends.formats.responses import ResponsesStreamReader, as_asked, read_response
from backends.formats.responses_chat import ChatOfResponseReader, read_response_as_chat
from backends.formats.responses_request import build_response_body, is_asked_as_response
from backends.formats.strict_turns import mend_for
from backends.http.client import HttpClient
from backends.http.errors import error_from_status, google_status
from backends.http.reply import MAX_ANSWER_BYTES
from backends.http.stream_reader import StreamReader
from backends.http_backend import (
    Exchange,
    HttpBackend,
    answers_ok,
    as_it_is,
    join_url,
    origin_of,
)
from backends.learned import Learned, Monotonic
from backends.media_exchanges import MediaExchanges
from backends.protocol import MEDIA, BackendHealth, Call, Chunk, Operation, Reply, Timeouts
from backends.unasked_streams import as_one_chat, as_one_response

HealthSource = Literal["models", "engine", "llamacpp", "vllm", "sglang"]

DEFAULT_PATHS: Final[Mapping[Operation, str]] = {
    "chat.completions": "chat/completions",
    "completions": "completions",
    "embeddings": "embeddings",
    "images.generations": "images/generations",
    "images.edits": "images/edits",
    "audio.speech": "audio/speech",
    "audio.transcriptions": "audio/transcriptions",
    "audio.translations": "audio/translations",
    "moderations": "moderations",
    "rerank": "rerank",
}
OPENAI_PATHS: Final[Mapping[Operation, str]] = {
    **DEFAULT_PATHS,
    "responses": "responses",
    "responses.input_tokens": "responses/input_tokens",
}
"""Paths of the few providers that also offer the Responses API."""
_COUNTING: Final = frozenset[HealthSource]({"engine", "llamacpp", "vllm"})
_METRICS: Final[Mapping[HealthSource, Callable[..., BackendHealth]]] = {
    "llamacpp": parse_llama_cpp_metrics,
    "sglang": parse_sglang_metrics,
    "vllm": parse_vllm_metrics,
}
_BESIDE_CHATS: Final = "chat/completions/input_tokens"
"""Where llama.cpp counts a chat's tokens."""
_NO_TOKENIZE: Final = frozenset({404, 405})
"""Statuses from a server whose proxy exposes only /v1."""
_STORED_TIMEOUTS: Final = Timeouts(first_byte_seconds=30.0, idle_seconds=30.0)
_NO_CHATS: Final = re.compile(rb"does not support the '/v1/chat/completions' API")
"""Of Bedrock's mantle endpoint, which serves GPT-5.4 and later over the Responses API alone."""
_ASK_THERE: Final = re.compile(
    rb"(?:use|only supported in|try) (?:the )?/?v1/responses\b|%b" % _NO_CHATS.pattern, re.IGNORECASE
)
"""How OpenAI and Azure reject a chat that only the Responses API serves."""
_NO_PAST: Final = re.compile(
    rb"encrypted[_ ]content|required following item|required 'reasoning' item|input\[\d+\]\.content': array too long"
    rb"|item with id 'rs_",
    re.IGNORECASE,
)
"""How OpenAI rejects earlier reasoning (another account's or server's, or without its item), or refuses to encrypt
any."""


def _is_in_background(body: bytes) -> bool:
    may_be = b"background" in body or ESCAPE in body
    return may_be and bool((decode_object(body) or {}).get("background"))


def _refused_field(refusal: UpstreamRejected) -> str | None:
    """The field named in the provider's error. The rest of the error may quote the caller, and is never stored."""
    return text_of(part_of(decode_object(refusal.body) or {}, "error"), "param")


_UNPAIRED: Final = re.compile(rb"no tool (?:output|call) found for", re.IGNORECASE)
"""How OpenAI rejects a call without a result, or a result without its call, in a response."""
Mends = Mapping[re.Pattern[bytes], Callable[[bytes], bytes]]
"""How a response's body is changed, by the words of a refusal."""
_PAIRING: Final[Mends] = {_UNPAIRED: with_every_output_of}
_MENDS: Final[Mends] = {_NO_PAST: without_past_reasoning, **_PAIRING}


class OpenAICompatibleBackend(HttpBackend):
    """One endpoint. `base_url` includes the version, as in `https://api.openai.com/v1`.

    `paths` maps operations to paths under the base URL; an operation without one is rejected. If `responses` has one,
    chats that a model serves only there are sent there. `dialect` is how this endpoint's chats differ from OpenAI's.
    `health_from` says where load is read: `models` only tells whether the endpoint answers; `engine` is our own;
    `llamacpp`, `vllm` and `sglang` read their metrics against `max_running`, the number of sequences they were started
    with.
    """

    def __init__(
        self,
        name: str,
        base_url: str,
        api_key: str | None,
        *,
        provider: str = "",
        paths: Mapping[Operation, str] = DEFAULT_PATHS,
        dialect: Dialect = PLAIN,
        health_from: HealthSource = "models",
        max_running: int | None = None,
        client: HttpClient | None = None,
        monotonic: Monotonic = time.monotonic,
    ) -> None:
        headers = {"accept": "application/json, text/event-stream"}
        headers |= {"authorization": f"Bearer {api_key}"} if api_key else {}
        super().__init__(name, base_url, headers, client=client)
        self._urls = {operation: join_url(base_url, path) for operation, path in paths.items()}
        self._dialect = dialect
        self._native = replace(
            PLAIN,
            models_think=dialect.models_think,
            withheld=dialect.withheld,
            instructs_once=dialect.instructs_once,
        )
        self._health_from: HealthSource = health_from
        self._max_running = max_running
        self._answer_no_chats = Learned[str, bool](monotonic)  # by model
        self._tell_no_summary = Learned[str, bool](monotonic)
        self._encrypt_nothing = Learned[str, bool](monotonic)
        self._refused = Learned[OfEffort, frozenset[str]](monotonic)  # of responses
        self._ends_told = Learned[str, bool](monotonic)
        self._chats = ChatExchanges(dialect, self.exchange, monotonic)
        self._media = MediaExchanges(name, monotonic)
        self._rerank_dialect = rerank_dialect_of(provider or name)

    async def open(self, call: Call) -> Reply:
        if call.operation != "chat.completions" or "responses" not in self._urls:
            return await self._open(call)
        if call.upstream_model in self._answer_no_chats or is_asked_as_response(
            call, models_think=self._dialect.models_think
        ):
            return await self._open_as_response(call)
        try:
            return await self._open(call)
        except UpstreamRejected as refusal:
            if not _ASK_THERE.search(refusal.body):
                raise
            says_none = _NO_CHATS.search(refusal.body) and not _NO_CHATS.search(without_escapes(call.body))
            if says_none or _refused_field(refusal) == "model":
                self._answer_no_chats.put(call.upstream_model, True)
            return await self._open_as_response(call)

    async def _open_as_response(self, call: Call, *, keeps_past: bool = True) -> Reply:
        """Sends a chat over the Responses API. A provider may refuse reasoning summaries (to unverified organisations)
        or another account's reasoning: then the call is retried without."""
        tells_summary = call.upstream_model not in self._tell_no_summary
        keeps_past = keeps_past and call.upstream_model not in self._encrypt_nothing
        thinks = self._dialect.models_think
        exchange = Exchange(
            url=self._urls["responses"],
            headers=self._headers | {"x-request-id": call.request_id},
            body=build_response_body(
                call, backend=self.name, models_think=thinks, keeps_past=keeps_past, tells_summary=tells_summary
            ),
            read_answer=lambda body: read_response_as_chat(as_one_response(body), backend=self.name),
            stream_reader=partial(ChatOfResponseReader, self.name, wants_usage_chunk=call.wants_usage_chunk),
            translate_error=in_openai_shape,
        )
        try:
            return await self._exchange_mended(call, exchange, _PAIRING)
        except UpstreamRejected as refusal:
            if tells_summary and _refused_field(refusal) == "reasoning.summary":
                self._tell_no_summary.put(call.upstream_model, True)
            elif keeps_past and _NO_PAST.search(refusal.body):
                keeps_past = False
                if _refused_field(refusal) == "include":
                    self._encrypt_nothing.put(call.upstream_model, True)
            else:
                raise
        return await self._open_as_response(call, keeps_past=keeps_past)

    async def _open(self, call: Call) -> Reply:
        url = self._urls.get(call.operation)
        if url is None:
            message = f"{self.name} does not offer {call.operation}"
            body = error_body(message, kind="invalid_request_error", code="unsupported_operation")
            raise Untranslatable(message, status=404, body=body)
        if call.operation == "rerank":
            return await self._open_rerank(call, url)
        if call.operation in MEDIA:
            return await self._open_media(call, url)
        is_count = call.operation == "responses.input_tokens"
        is_native = is_count or call.operation == "responses"
        if is_native and _is_in_background(call.body):
            raise in_background()
        body = build_body(call, self._native) if is_native else self._chats.body(call)
        if (names := call.response_names) is not None:
            body = as_asked(body, names, backend=self.name)
        exchange = Exchange(
            url=url,
            headers=self._headers | {"x-request-id": call.request_id},
            body=body,
            read_answer=(lambda body: read_response(as_one_response(body), backend=self.name, names=names))
            if call.operation == "responses"
            else partial(read_count, backend=self.name)
            if is_count
            else partial(self._read_answer, call),
            stream_reader=partial(self._stream_reader, call),
            translate_error=in_openai_shape,
            true_status=google_status if self._dialect.says_400_of_keys else as_it_is,
        )
        if is_native:
            return await self._exchange_mended(call, exchange, _MENDS)
        return await self._chats.exchange(call, exchange)

    async def _exchange_mended(self, call: Call, exchange: Exchange, mends: Mends) -> Reply:
        """Asks again with each mend that the refusal calls for, once: without the reasoning of earlier turns; with a
        result for each call, and no other results."""
        left = dict(mends)
        while True:
            try:
                return await self._exchange_tuned(call, exchange)
            except UpstreamRejected as refusal:
                refused = next((words for words in left if words.search(refusal.body)), None)
                mended = exchange.body if refused is None else left.pop(refused)(exchange.body)
                if mended == exchange.body:
                    raise
            exchange = replace_fields(exchange, body=mended)

    async def _exchange_tuned(self, call: Call, exchange: Exchange) -> Reply:
        """Asks again for a response without the fields that a deployment refuses, if they only tune it, and for later
        ones at once. A count may refuse more than a response, and teaches nothing."""
        key = of_response_effort(call.upstream_model, exchange.body)
        is_count = call.operation == "responses.input_tokens"
        known = None if is_count else self._refused.get(key)
        if known and not self._chats.is_answered_for_itself(call):
            exchange = replace_fields(exchange, body=without_refused(exchange.body, known))
        refused: set[str] = set()
        while True:
            try:
                reply = await self.exchange(call, exchange)
                break
            except UpstreamRejected as refusal:
                name = refused_field(refusal.body)
                if name is None or self._chats.is_answered_for_itself(call):
                    raise
                if (kept := without_refused(exchange.body, (name,))) == exchange.body:
                    raise
                refused.add(name)
            exchange = replace_fields(exchange, body=kept)
        if refused and not is_count and not may_be_repeated(call.body):
            self._refused.put(key, (self._refused.get(key) or frozenset()) | refused)
        return reply

    async def _open_media(self, call: Call, url: str) -> Reply:
        asked, exchange = self._media.build(call, url, self._headers)
        try:
            return await self.exchange(call, exchange)
        except UpstreamRejected as refusal:
            if not self._media.learns(call, asked, refusal):
                raise
        try:
            return await self._open_media(call, url)
        except UpstreamRejected:  # the server may only have repeated the caller's words
            self._media.forget(call.upstream_model)
            raise

    async def _open_rerank(self, call: Call, url: str) -> Reply:
        dialect = self._rerank_dialect
        asked = ask_rerank(call, dialect, backend=self.name)
        exchange = Exchange(
            url=join_url(origin_of(self._base_url), dialect.path) if dialect.path else url,
            headers=self._headers | {"x-request-id": call.request_id},
            body=asked.body,
            read_answer=partial(read_ranking, asked=asked, call=call, backend=self.name),
            stream_reader=partial(self._stream_reader, call),
            translate_error=in_openai_shape,
        )
        try:
            return await self.exchange(call, exchange)
        except UpstreamRejected as refusal:
            if (elsewhere := where_another_may_do(refusal)) is None:
                raise
            raise elsewhere from refusal

    @property
    def counts_chats(self) -> bool:
        """See CountsChats."""
        return self._health_from in _COUNTING

    async def count_chat(self, call: Call) -> int | None:
        """See CountsChats. Our engine counts with the code that answers, so its rejections stand; llama.cpp, at an
        address beside that of chats, and vLLM count with separate code, which sees only the placeholder of an image."""
        is_ours = self._health_from == "engine"
        body = self._chats.body(call)
        if not self.counts_chats or not (is_ours or is_text_alone(body)):
            return None
        is_beside_chats = self._health_from == "llamacpp"
        exchange = Exchange(
            url=join_url(self._base_url, _BESIDE_CHATS)
            if is_beside_chats
            else join_url(origin_of(self._base_url), TOKENIZE),
            headers=self._headers | {"x-request-id": call.request_id},
            body=tokenize_body(body),
            read_answer=partial(read_count if is_beside_chats else read_token_count, backend=self.name),
            stream_reader=partial(self._stream_reader, call),
            translate_error=in_openai_shape,
        )
        try:
            [chunk] = [chunk async for chunk in await self.exchange(briefly(call), exchange)]
        except UpstreamRejected as refusal:
            if is_ours and refusal.status not in _NO_TOKENIZE and mend_for(refusal.body) is None:
                raise
            return None
        return None if chunk.usage is None else chunk.usage.input_tokens

    async def stored(self, method: str, path: str) -> bytes | None:
        """See KeepsResponses. None if this endpoint lacks the Responses API."""
        url = self._urls.get("responses")
        if url is None:
            return None
        status, headers, body = await self.ask(
            method, join_url(url, path), self._headers, timeouts=_STORED_TIMEOUTS, limit=MAX_ANSWER_BYTES
        )
        if 200 <= status < 300:
            return body
        raise error_from_status(status, headers, in_openai_shape(body), backend=self.name)

    def _read_answer(self, call: Call, body: bytes) -> Chunk:
        if call.operation == "chat.completions":
            body = as_one_chat(body)
        chunk = read_answer(body, backend=self.name, has_choices=call.operation != "embeddings")
        return with_calls_told(chunk) if self._dialect.stops_at_calls else chunk

    def _stream_reader(self, call: Call) -> StreamReader:
        if call.operation == "responses":
            return ResponsesStreamReader(self.name, names=call.response_names)
        reader = CallsToldReader if self._dialect.stops_at_calls else OpenAIStreamReader
        return reader(
            self.name,
            wants_usage_chunk=call.wants_usage_chunk,
            joins_events=not call.is_translated,
            model=call.upstream_model,
            ends_told=self._ends_told,
        )

    async def health(self) -> BackendHealth:
        source, slots = self._health_from, self._max_running
        if source == "models":
            return await self.probe(join_url(self._base_url, "models"), self._headers, answers_ok)
        origin = origin_of(self._base_url)
        if source == "engine":
            return await self.probe(join_url(origin, "health"), self._headers, parse_engine_health)
        parse = _METRICS[source]

        def read(status: int, body: bytes) -> BackendHealth:
            health = answers_ok(status, body)
            return parse(body.decode(errors="replace"), max_running=slots) if health.is_healthy else health

        return await self.probe(join_url(origin, "metrics"), self._headers, read)
