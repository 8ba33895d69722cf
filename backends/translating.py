"""Gives a backend the endpoints that its wire format lacks (Responses, Messages, Gemini's), by translating to a chat
and back.

Knows no adapter: its constructor is told what the wrapped backend serves natively.
"""

import time
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Final, cast

import msgspec

from backends.chat_counts import CountsChats
from backends.dialects import ABOUT_REASONING, PLAIN, Dialect
from backends.endpoints.content_errors import content_error_from
from backends.endpoints.content_events import ContentEventWriter, ContentHead, content_from_answer
from backends.endpoints.content_format import ContentAsked, chat_from_content, request_to_count
from backends.endpoints.custom_calls import CustomCallWriter, may_need_functions, with_custom_calls, with_functions
from backends.endpoints.messages_events import (
    MessagesEventWriter,
    message_from_answer,
    messages_error_from,
)
from backends.endpoints.messages_format import chat_body_from_messages, keeps_reasoning
from backends.endpoints.messages_tools import own_name
from backends.endpoints.responses_compaction import is_for_compaction
from backends.endpoints.responses_events import ResponsesEventWriter, response_from_answer
from backends.endpoints.responses_format import chat_body_from_responses, is_taken_as_chat
from backends.endpoints.responses_items import ResponseHead
from backends.endpoints.tool_call_deltas import EndlessAnswer
from backends.errors import StreamBroken, UpstreamRejected
from backends.formats.efforts import with_effort_alone
from backends.formats.json_objects import decode_object
from backends.formats.json_splice import NotAnObject, splice
from backends.formats.responses import leans_on_kept
from backends.formats.sampling import caches_at_breakpoints
from backends.http.reply import PlainReply
from backends.learned import Learned, OfTools, of_tools
from backends.model_lists import ListsModels, ModelList
from backends.protocol import (
    COUNT_OF_CONTENT,
    COUNTS,
    Backend,
    BackendHealth,
    Call,
    Chunk,
    KeepsResponses,
    Operation,
    Reply,
)
from backends.usage import Usage

LONGEST_STREAM_BYTES: Final = 256 << 20
"""Of the chat's stream: enough for a hundred thousand tokens with twenty logprobs each."""
_SAID_BY_EFFORT: Final[Mapping[Operation, tuple[str, ...]]] = {
    "messages": ("reasoning",),
    "generate_content": ABOUT_REASONING,
}
"""What becomes an effort where chats are translated to such a format: Anthropic's has a `thinking` of its own."""
Write = Callable[[Chunk], bytes]
"""A chunk's payload in the other format."""
WriteError = Callable[[UpstreamRejected], bytes]
"""The body of a refusal in the other format."""


class TranslatingBackend:
    """Wraps a backend; operations in `native` go to it unchanged.

    `dialect` is that of its chats. `now` is Unix seconds, for a response's date.
    """

    def __init__(
        self,
        inner: Backend,
        *,
        native: Collection[Operation] = (),
        dialect: Dialect = PLAIN,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._inner = inner
        self._native = native
        self._dialect = dialect
        self._now = now
        other_formats = (names for operation, names in _SAID_BY_EFFORT.items() if operation in native)
        self._said_by_effort = next(other_formats, dialect.says_by_effort)
        self._take_functions = Learned[OfTools | None, bool]()
        self._taken_as_chats = Learned[OfTools | None, bool]()

    @property
    def name(self) -> str:
        return self._inner.name

    @property
    def is_simulated(self) -> bool:
        return self._inner.is_simulated

    async def open(self, call: Call) -> Reply:
        operation = call.operation
        if operation == "responses":
            return await (self._open_own_response if operation in self._native else self._open_response)(call)
        if operation == "chat.completions" and self._said_by_effort:
            call = msgspec.structs.replace(call, body=with_effort_alone(call.body, self._said_by_effort))
        if operation == "chat.completions" and not self._dialect.models_think and may_need_functions(call.body):
            return await self._open_chat_of_custom_tools(call)
        if operation == "messages" and operation not in self._native:
            return await self._open_message(call)
        if operation == "generate_content" and operation not in self._native:
            return await self._open_content(call)
        if operation in COUNTS and operation not in self._native:
            return PlainReply(await self._count(call))
        return await self._inner.open(call)

    async def stored(self, method: str, path: str) -> bytes | None:
        """See KeepsResponses: only a backend with native responses stores any."""
        if "responses" in self._native and isinstance(self._inner, KeepsResponses):
            return await self._inner.stored(method, path)
        return None

    async def model_lists(self) -> Sequence[ModelList]:
        """See ListsModels; empty if the backend does not support it."""
        return await self._inner.model_lists() if isinstance(self._inner, ListsModels) else ()

    async def health(self) -> BackendHealth:
        return await self._inner.health()

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def _open_chat_of_custom_tools(self, call: Call) -> Reply:
        """Asks again with functions in their place, if the model has none; later at once, with these tools."""
        tools = of_tools(call.upstream_model, call.body)
        is_known = self._dialect.ignores_custom_tools or tools in self._take_functions
        made = with_functions(call.body) if is_known else None
        if made is None:
            try:
                return await self._inner.open(call)
            except UpstreamRejected:
                if (made := with_functions(call.body)) is None:
                    raise
        inner = await self._inner.open(msgspec.structs.replace(call, body=made.body, is_translated=True))
        if tools and not is_known:
            self._take_functions.put(tools, True)
        if call.is_stream:
            return _WrittenReply(self.name, inner, CustomCallWriter(made.names).write)
        return _WrittenReply(self.name, inner, lambda chunk: with_custom_calls(chunk.payload, made.names))

    async def _open_own_response(self, call: Call) -> Reply:
        """Asks an open model's server again as a chat, if it takes less in its own responses; later at once, with these
        tools. OpenAI takes more."""
        if self._dialect.models_think:
            return await self._inner.open(call)
        tools = of_tools(call.upstream_model, call.body)
        if tools in self._taken_as_chats or is_for_compaction(call.body):
            try:
                return await self._open_response(call)
            except UpstreamRejected:  # as a response it may be taken, or is refused in better words
                return await self._inner.open(call)
        try:
            return await self._inner.open(call)
        except UpstreamRejected as refusal:
            if not is_taken_as_chat(refusal):
                raise
            try:
                reply = await self._open_response(call)
            except UpstreamRejected:
                raise refusal from None
        if tools:
            self._taken_as_chats.put(tools, True)
        return reply

    async def _open_response(self, call: Call) -> Reply:
        body = self._chat_of(call)
        head = ResponseHead(
            f"resp_{call.request_id}",
            int(self._now()),
            decode_object(call.body) or {},
            previous_response_id=call.previous_response_id,
            is_kept=call.is_kept,
        )
        inner = await self._inner.open(_as_chat(call, body))
        if call.is_stream:
            return _WrittenReply(self.name, inner, ResponsesEventWriter(head, now=self._now).write)
        return _WrittenReply(
            self.name, inner, lambda chunk: response_from_answer(chunk.payload, chunk.usage, head, now=self._now())
        )

    def _chat_of(self, call: Call) -> bytes:
        """Raises UpstreamRejected."""
        takes_effort = call.reasons or not self._dialect.refuses_effort
        return chat_body_from_responses(call.body, thoughts=self._dialect.thoughts, takes_effort=takes_effort)

    async def _count(self, call: Call) -> Chunk:
        """The tokens of the chat that would be sent, counted or else estimated. Raises BackendError."""
        if "responses" in self._native and leans_on_kept(call.body):  # the provider keeps what no chat can say
            return _counted(call.operation, call.input_tokens, is_estimated=True)
        inner = self._inner if isinstance(self._inner, CountsChats) and self._inner.counts_chats else None
        body = self._chat_to_count(call, is_asked=inner is not None)
        counted: int | None = None
        if inner is not None and body is not None:
            try:
                counted = await inner.count_chat(_as_chat(call, body))
            except UpstreamRejected as error:
                error.body = _in_format_of(call.operation, error)
                raise
        if counted is None:  # the backend cannot count
            return _counted(call.operation, call.input_tokens, is_estimated=True)
        return _counted(call.operation, counted)

    def _chat_to_count(self, call: Call, *, is_asked: bool) -> bytes | None:
        """The chat that would be sent; None for an invalid Messages body. Raises UpstreamRejected."""
        if call.operation == "responses.input_tokens":
            return self._chat_of(call)
        if call.operation == COUNT_OF_CONTENT:
            return self._content_of(call, request_to_count(call.body)).body
        if not is_asked:
            return None
        try:
            return self._message_as_chat(call, splice(call.body, {"max_tokens": b"1"}))  # required in Messages
        except (UpstreamRejected, NotAnObject):
            return None

    def _message_as_chat(self, call: Call, body: bytes) -> bytes:
        """Raises UpstreamRejected."""
        return chat_body_from_messages(
            body,
            keeps_cache_marks=self._dialect.takes_cache_marks
            or (self._dialect.models_think and caches_at_breakpoints(call.upstream_model)),
            continues_last=self._dialect.continues_messages,
            thoughts=self._dialect.thoughts,
            reasons=call.reasons,
        )

    async def _open_message(self, call: Call) -> Reply:
        body = self._message_as_chat(call, call.body)
        try:
            inner = await self._inner.open(_as_chat(call, body))
        except UpstreamRejected as error:
            error.body = _message_error(error)
            raise
        message_id, model, stops = f"msg_{call.request_id}", call.upstream_model, _stop_sequences(call.body)
        keeps, name_of = partial(keeps_reasoning, call.body), partial(own_name, call.body)
        if call.is_stream:
            writer = MessagesEventWriter(
                message_id=message_id,
                model=model,
                input_tokens=call.input_tokens,
                stop_sequences=stops,
                keeps_reasoning=keeps,
                name_of=name_of,
            )
            return _WrittenReply(self.name, inner, writer.write, _message_error)
        return _WrittenReply(
            self.name,
            inner,
            lambda chunk: message_from_answer(
                chunk.payload,
                chunk.usage,
                message_id=message_id,
                model=model,
                stop_sequences=stops,
                keeps_reasoning=keeps,
                name_of=name_of,
            ),
        )

    async def _open_content(self, call: Call) -> Reply:
        asked = self._content_of(call, call.body)
        try:
            inner = await self._inner.open(_as_chat(call, asked.body))
        except UpstreamRejected as error:
            error.body = _content_error(error)
            raise
        head = ContentHead(call.request_id, call.upstream_model, asked.shows_thoughts, asked.wrapping, asked.names)
        if call.is_stream:
            return _WrittenReply(self.name, inner, ContentEventWriter(head).write, _content_error)
        return _WrittenReply(self.name, inner, lambda chunk: content_from_answer(chunk.payload, chunk.usage, head))

    def _content_of(self, call: Call, body: bytes) -> ContentAsked:
        try:
            return chat_from_content(
                body,
                model=call.upstream_model,
                is_stream=call.is_stream,
                thoughts=self._dialect.thoughts,
                takes_effort=call.reasons,
                signs_calls=self._dialect.needs_signatures,
            )
        except UpstreamRejected as error:
            error.body = _content_error(error)
            raise


class _WrittenReply:
    """A chat reply with every chunk's payload in the other format; the metering is unchanged.

    Some formats repeat the whole answer at a stream's end, so an endless stream is cut off before it fills the memory.
    """

    def __init__(
        self, backend: str, inner: Reply, write: Write, write_error: WriteError = lambda error: error.body
    ) -> None:
        self._backend = backend
        self._inner = inner
        self._write = write
        self._write_error = write_error

    @property
    def content_type(self) -> str:
        return self._inner.content_type

    async def __aiter__(self) -> AsyncGenerator[Chunk]:
        came = 0
        try:
            async for chunk in self._inner:
                came += len(chunk.payload)
                if came > LONGEST_STREAM_BYTES and not chunk.is_done:
                    raise EndlessAnswer
                yield msgspec.structs.replace(chunk, payload=self._write(chunk))
        except EndlessAnswer as error:
            raise StreamBroken(f"{self._backend} sent an endless answer") from error
        except UpstreamRejected as refusal:
            refusal.body = self._write_error(refusal)
            raise

    async def aclose(self) -> None:
        await self._inner.aclose()


def _stop_sequences(body: bytes) -> Collection[object]:
    """A Messages body's stop sequences; the search spares most bodies a second parse."""
    found = (decode_object(body) or {}).get("stop_sequences") if b'"stop_sequences"' in body else None
    return cast(list[object], found) if isinstance(found, list) else ()


def _as_chat(call: Call, body: bytes) -> Call:
    return msgspec.structs.replace(
        call, operation="chat.completions", body=body, wants_usage_chunk=False, is_translated=True
    )


def _in_format_of(operation: Operation, error: UpstreamRejected) -> bytes:
    """The body of a chat's rejection in the format of the count request."""
    if operation == "responses.input_tokens":
        return error.body
    return _content_error(error) if operation == COUNT_OF_CONTENT else _message_error(error)


def _message_error(error: UpstreamRejected) -> bytes:
    return messages_error_from(error.body, error.status or 400, error.message)


def _content_error(error: UpstreamRejected) -> bytes:
    return content_error_from(error.body, error.status or 400, error.message)


def _counted(operation: Operation, count: int, *, is_estimated: bool = False) -> Chunk:
    kind = {"object": "response.input_tokens"} if operation == "responses.input_tokens" else {}
    name = "totalTokens" if operation == COUNT_OF_CONTENT else "input_tokens"
    usage = Usage(input_tokens=count, is_estimated=is_estimated)
    return Chunk(msgspec.json.encode({**kind, name: count}), usage=usage, is_done=True)
