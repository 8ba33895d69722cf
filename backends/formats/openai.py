"""Parses OpenAI's stream events and answers into values. No IO, no clock. Requests are in openai_request.py.

The bytes passed on are the upstream's own, except for texts that Mistral wrote in parts. What is read of an event is in
openai_events.py.
"""

from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Final, cast

import msgspec
from msgspec.structs import replace

from backends.errors import BackendError, UnreadableAnswer
from backends.formats.answer_parts import with_one_text
from backends.formats.json_objects import NOT_JSON, decode_object, integer, objects_of
from backends.formats.openai_events import ChatEvent, Choice, decode_leniently, error_in_text, error_told
from backends.formats.text_runs import BETWEEN, TextRuns
from backends.formats.usage_wire import MalformedUsage, parse_openai_usage, parse_timings
from backends.http.errors import error_from_event, no_answer
from backends.http.stream_reader import StreamReader
from backends.learned import Learned
from backends.protocol import Chunk
from backends.usage import Usage

DONE: Final = b"data: [DONE]\n\n"
_FAILED: Final = "error_finish"
_GIVEN_UP: Final = frozenset({"abort", "error", "insufficient_system_resource", "network_error", _FAILED})
"""Finish reasons of an answer that was not brought to its end: vLLM and SGLang, OpenRouter, DeepSeek, Z.ai,
DashScope."""
_BAD_CALL: Final = "function_call_filter"
"""How Gemini's compatible endpoint begins the finish reason of an answer with a call that its model wrote badly."""
_STOP: Final = "stop"
_NONE_YET: Final = "null"
"""As text: the finish reason of KoboldCpp until March 2025 (AIShell #350) and of DashScope's own format while an answer
goes on."""
_COMPLETION: Final = "text_completion"
_LINE_FEED: Final = 10
_NO_USAGE: Final = b',"usage":null'
_LONGEST_END: Final = 16
"""Of `[DONE]` and white space after it."""
_EVENT: Final = msgspec.json.Decoder(ChatEvent)
_MOST_JOINED: Final = 64  # events; bounds how often an event that cannot be joined is decoded again


def error_body(message: str, *, kind: str, code: str | None = None, param: str | None = None) -> bytes:
    """OpenAI's error shape."""
    return msgspec.json.encode({"error": {"message": message, "type": kind, "param": param, "code": code}})


def event_bytes(data: bytes) -> bytes:
    """One SSE event. A raw newline in JSON is whitespace, so it may become a space."""
    if b"\n" in data:
        data = data.replace(b"\n", b" ")
    return b"data: " + data + b"\n\n"


class OpenAIStreamReader(StreamReader):
    """Turns the data of one stream's events into chunks and knows whether the stream ended properly.

    `ends_told` has the models whose streams tell why they end: without that or a usage, `[DONE]` ends none of theirs.
    Other servers never tell, so what is not known there is no fault; vLLM and vllm-mlx tell it of some streams alone,
    and a usage of all that they finished.

    A usage that comes before the end is none yet: Gemini and Perplexity tell with each event what it is so far.
    """

    __slots__ = (
        "_ends_told",
        "_finished_choices",
        "_has_usage",
        "_joins",
        "_model",
        "_seen_choices",
        "_texts",
        "_tools_run",
        "_usage_so_far",
        "_used_by_choices",
        "_wants_usage",
    )

    def __init__(
        self,
        backend: str,
        *,
        wants_usage_chunk: bool,
        joins_events: bool = False,
        model: str = "",
        ends_told: Learned[str, bool] | None = None,
    ) -> None:
        # Not through super().__init__, to save a call per stream.
        self._backend = backend
        self.is_started = False
        self.is_done = False
        self._wants_usage = wants_usage_chunk
        self._joins = joins_events
        self._model = model
        self._ends_told = ends_told
        self._texts = TextRuns()
        self._has_usage = False
        self._seen_choices: set[int] = set()
        self._finished_choices: dict[int, str] = {}
        self._used_by_choices: Usage | None = None
        self._tools_run = 0
        self._usage_so_far: Usage | None = None  # until every choice has finished

    def read(self, data: bytes) -> list[Chunk]:
        """The chunk for one event. Raises StreamBroken, or before the first chunk any retryable error."""
        if data == b"null":  # llama.cpp's first event for several prompts
            return []
        if len(data) < _LONGEST_END and data.strip() == b"[DONE]":
            if not self._seen_choices and not self._finished_choices:
                raise self._broken("ended its stream without an answer")
            self._check_end()
            self.is_done = True
            return [Chunk(DONE, usage=self._usage_so_far, is_done=True)]
        event, data = self._decode(data)
        if event.is_failure:
            raise _billed(self._failed(event.error), event)
        line = data.replace(b"\n", b" ")
        if not event.choices and (error := error_told((event,), (line,))) is not None:
            raise _billed(self._failed(error), event)
        chunk = self._chunk((event,), (line,))
        self._note(chunk)
        return [chunk]

    def join(self, events: deque[bytes]) -> Chunk | None:
        """As `StreamReader.join`: all events except `[DONE]` in one chunk, unless one is an error or not JSON."""
        if not self._joins:
            return None
        datas = list(islice(events, _MOST_JOINED))
        if datas[-1] == b"[DONE]":
            datas.pop()
        if len(datas) < 2 or _LINE_FEED in b"".join(datas):
            return None
        try:
            decoded, lines = self._texts.decode(datas)
        except NOT_JSON:
            return None
        if _has_failure(decoded) or error_told(decoded, lines) is not None:
            return None
        chunk = self._chunk(decoded, lines)
        self._note(chunk)
        for _ in datas:
            events.popleft()
        return chunk

    def end(self) -> list[Chunk]:
        """The stream ended without `[DONE]`: the closing chunk if every choice had finished. Raises otherwise."""
        if self._finished_choices and self._seen_choices <= self._finished_choices.keys():
            self.is_done = True
            return [Chunk(DONE, usage=self._usage_so_far, is_done=True)]
        return super().end()

    def _check_end(self) -> None:
        """llama-cpp-python's server, unless told otherwise, ends a running stream so when another request comes."""
        if self._ends_told is None:
            return
        if self._seen_choices <= self._finished_choices.keys():
            self._ends_told.forget(self._model)  # what is known since before would be forgotten an hour after that
            self._ends_told.put(self._model, True)
        elif not self._has_usage and self._model in self._ends_told:
            raise self._broken("ended its stream in the middle of the answer")

    def _note(self, chunk: Chunk) -> None:
        if chunk.has_output or chunk.finish_reason:
            self.is_started = True

    def _decode(self, data: bytes) -> tuple[ChatEvent, bytes]:
        try:
            return _EVENT.decode(data), data
        except NOT_JSON:
            pass
        try:
            return decode_leniently(data)
        except ValueError as error:
            raise self._broken("sent an event that is not JSON") from error

    def _chunk(self, events: Sequence[ChatEvent], lines: Sequence[bytes]) -> Chunk:
        """One chunk for these events; `lines` has the data of each."""
        characters = 0
        has_output = has_parts = is_malformed = is_given_up = is_ended_twice = is_foreign = False
        finish_reason = usage = usage_so_far = timings = None
        for event in events:
            has_usage = event.usage is not None or event.x_groq is not None
            for choice in event.choices or ():
                text = choice.delta
                found, count = choice.output() if text is None else text.output()
                if found:
                    has_output = True
                    characters += count
                if text is not None:
                    if type(text.content) is list:
                        has_parts = True
                    if text.executed_tools:
                        self._tools_run = max(self._tools_run, choice.tools_run)
                if choice.finish_reason and choice.finish_reason != _NONE_YET:
                    is_given_up = is_given_up or _is_given_up(choice)
                    before = self._finished_choices.setdefault(choice.index, choice.finish_reason)
                    if choice.finish_reason == _STOP != before:
                        is_ended_twice = True
                    else:
                        finish_reason = choice.finish_reason
                else:
                    self._seen_choices.add(choice.index)
                has_usage = has_usage or choice.usage is not None
            if event.choices is None and event.usage is None:
                is_foreign = True
            if has_usage:
                self._has_usage = True
                found_usage, is_no_usage = _usage(event)
                if found_usage is not None and event.timings is not None:
                    found_usage = self._used_by_choices = _with_another_choice(
                        self._used_by_choices, found_usage, event
                    )
                if self._tools_run:
                    found_usage = _with_tools_run(found_usage, self._tools_run)
                is_malformed = is_malformed or is_no_usage
                if not event.choices or self._seen_choices <= self._finished_choices.keys():
                    usage, self._usage_so_far = found_usage or usage, None
                else:
                    self._usage_so_far = usage_so_far = found_usage or self._usage_so_far
            if is_given_up:
                given_up = (
                    self._failed(error_in_text(_text_of(event)))
                    if finish_reason == _FAILED
                    else self._broken("gave up in the middle of the answer")
                )
                given_up.usage = usage or usage_so_far
                raise given_up
            if event.x_breakeven:
                timings = parse_timings(event.x_breakeven)
        if is_foreign:
            events, lines = _of_the_chat(events, lines)
        if has_parts:
            lines = [with_one_text(line) for line in lines]
        if is_ended_twice:
            lines = [self._without_second_end(line) for line in lines]
        told = BETWEEN.join(lines)
        if not self._wants_usage and b'"usage"' in told:
            told = BETWEEN.join(_without_usage(events, lines))
        payload = b"data: %b\n\n" % told if told else b""
        return Chunk(payload, has_output, characters, finish_reason, usage, timings, False, is_malformed, usage_so_far)

    def _without_second_end(self, line: bytes) -> bytes:
        """Xinference ends each stream whose usage is asked for with `stop`, also one that it just ended with `length`,
        and clients believe the last word."""
        document = decode_object(line)
        if document is None:  # several that only say a text
            return line
        for choice in objects_of(document.get("choices")):
            before = self._finished_choices.get(integer(choice, "index") or 0)
            if choice.get("finish_reason") == _STOP != before:
                choice["finish_reason"] = None
        return msgspec.json.encode(document)


def _billed(error: BackendError, event: ChatEvent) -> BackendError:
    """The error with the usage told beside it, which its provider charges."""
    error.usage, _ = _usage(event)
    return error


def _with_another_choice(so_far: Usage | None, usage: Usage, event: ChatEvent) -> Usage:
    """Choices of a chat share their prompt; completions may each have their own."""
    if so_far is None:
        return usage
    of_one = event.kind != _COMPLETION
    return replace(
        usage,
        input_tokens=usage.input_tokens + (0 if of_one else so_far.input_tokens),
        cached_input_tokens=usage.cached_input_tokens + (0 if of_one else so_far.cached_input_tokens),
        output_tokens=usage.output_tokens + so_far.output_tokens,
        reasoning_tokens=usage.reasoning_tokens + so_far.reasoning_tokens,
    )


def _with_tools_run(usage: Usage | None, tools_run: int) -> Usage | None:
    return usage and replace(usage, other_tool_calls=usage.other_tool_calls + tools_run)


def _of_all_choices(event: ChatEvent, usage: Usage, characters: int) -> Usage | None:
    """An estimate from the first choice's usage; None if each choice may have had a prompt of its own."""
    choices = event.choices or []
    _, of_first = choices[0].output()
    if event.kind == _COMPLETION:
        return None
    share = characters / of_first if of_first else len(choices)
    return replace(usage, output_tokens=round(usage.output_tokens * share), is_estimated=True)


def _has_failure(events: Sequence[ChatEvent]) -> bool:
    for event in events:
        if event.kind == "error" or (event.error is not None and event.is_failure):  # the property is for the few
            return True
        for choice in event.choices or ():
            if choice.finish_reason and _is_given_up(choice):
                return True
    return False


def _is_given_up(choice: Choice) -> bool:
    reason = choice.finish_reason or ""
    return reason in _GIVEN_UP or reason.startswith(_BAD_CALL) or choice.native_finish_reason in _GIVEN_UP


def _text_of(event: ChatEvent) -> str:
    texts = (choice.delta.content for choice in event.choices or () if choice.delta is not None)
    return "".join(text for text in texts if isinstance(text, str))


def _of_the_chat(events: Sequence[ChatEvent], lines: Sequence[bytes]) -> tuple[Sequence[ChatEvent], Sequence[bytes]]:
    """Without events of a server's own, as hermes-agent's `hermes.tool.progress`: clients take each for a chunk, and
    break on one without choices."""
    kept = [at for at, event in enumerate(events) if event.choices is not None or event.usage is not None]
    return [events[at] for at in kept], [lines[at] for at in kept]


def _without_usage(events: Sequence[ChatEvent], lines: Sequence[bytes]) -> list[bytes]:
    kept = [line for event, line in zip(events, lines, strict=True) if event.usage is None or event.choices]
    # With include_usage OpenAI adds this to every chunk. The quotes are unescaped, so the bytes cannot be inside a
    # string: they can only be a member.
    return [line.replace(_NO_USAGE, b"", 1) for line in kept] if _NO_USAGE in b"".join(kept) else kept


def read_answer(body: bytes, *, backend: str, has_choices: bool = True) -> Chunk:
    """The single chunk of an answer that is not streamed; embeddings have no choices. Raises UnreadableAnswer if the
    body is no answer: some providers say in a 200 what went wrong."""
    try:
        event = _EVENT.decode(body)
    except NOT_JSON:
        try:
            event, body = decode_leniently(body)
        except ValueError as error:
            raise no_answer(f"{backend} answered with something that is not JSON", body) from error
    if event.error is not None and event.is_failure:
        raise _billed(error_from_event(event.error, backend=backend, is_started=False), event)
    if has_choices and not event.choices and (error := error_told((event,), (body,))) is not None:
        raise _billed(error_from_event(error, backend=backend, is_started=False), event)
    has_output, characters, finish_reason, tools_run = not event.choices, 0, None, 0
    is_given_up, is_bare, has_parts = has_choices and not event.choices, False, False
    for choice in event.choices or ():
        is_said, count = choice.output()
        has_output = has_output or is_said
        characters += count
        tools_run += choice.tools_run
        has_parts = has_parts or (choice.message is not None and type(choice.message.content) is list)
        if choice.finish_reason:
            finish_reason = finish_reason or choice.finish_reason
            is_bare = is_bare or choice.is_bare
        is_given_up = is_given_up or _is_given_up(choice)
    usage, is_malformed = _usage(event, has_choices=has_choices)
    if usage is not None and event.timings is not None and len(event.choices or ()) > 1:
        usage = _of_all_choices(event, usage, characters)
    usage = _with_tools_run(usage, tools_run) if tools_run else usage
    if is_given_up:
        raise UnreadableAnswer(f"{backend} gave up its answer", usage=usage, output_characters=characters)
    if is_bare:
        body = _with_messages(body)
    if has_parts:
        body = with_one_text(body)
    return Chunk(
        body,
        has_output=has_output,
        output_characters=characters,
        finish_reason=finish_reason,
        usage=usage,
        timings=parse_timings(event.x_breakeven),
        is_done=True,
        is_usage_malformed=is_malformed,
    )


def _with_messages(body: bytes) -> bytes:
    """Gemini's compatible endpoint leaves the message out of a choice that it filtered, on which clients break."""
    document = decode_object(body) or {}
    for choice in objects_of(document.get("choices")):
        if choice.get("message") is None:
            choice["message"] = {"role": "assistant", "content": None}
    return msgspec.json.encode(document)


def _usage(event: ChatEvent, *, has_choices: bool = True) -> tuple[Usage | None, bool]:
    """(usage, wherever the provider puts it; whether there was one that cannot be believed)."""
    wire: object = event.usage
    if wire is None and event.x_groq is not None:
        wire = event.x_groq.get("usage")
    for choice in event.choices or ():  # Moonshot puts it inside the choice
        wire = choice.usage if wire is None else wire
    if wire is None:
        return None, False
    if not has_choices and isinstance(wire, dict) and wire.keys() == {"total_tokens"}:  # Voyage's of embeddings
        wire = {"prompt_tokens": cast(dict[str, object], wire)["total_tokens"]}
    try:
        return parse_openai_usage(wire, service_tier=event.service_tier), False
    except MalformedUsage:
        return None, True
