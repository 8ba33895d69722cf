"""One request's answers while they are computed: all choices merged, as one body or as server-sent events. No HTTP."""

import asyncio
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Any

import msgspec

from local_engine.async_engine import Admission
from local_engine.engine_core import Delta
from local_engine.request import Request
from local_engine.server.chat import Prepared
from local_engine.server.logprob_answers import LogprobWire, joined
from local_engine.server.openai_answers import (
    AnswerWire,
    Collected,
    ToolSplit,
    ending_of,
    error_event,
    error_of,
    usage,
    whole_calls,
)
from local_engine.text.thinking import ThinkingSplit
from local_engine.text.tool_calls import ToolCallParser


async def deltas(admission: Admission, prepared: Prepared) -> AsyncGenerator[tuple[int, Delta]]:
    """Deltas of all answers as they come. A prompt's first answer computes the prompt; the others start from its
    cache."""
    merged: asyncio.Queue[tuple[int, Delta]] = asyncio.Queue()
    computed = {answer: asyncio.Event() for answer in range(0, prepared.answers, len(prepared.choices))}

    async def follow(answer: int) -> None:
        first = prepared.first_of(answer)
        if answer != first:
            await computed[first].wait()
        prompt, params = prepared.prompt_of(answer).token_ids, prepared.params_of(answer)
        async with aclosing(admission.generate(prompt, params, cache_salt=prepared.cache_salt)) as own:
            async for delta in own:
                computed[first].set()
                merged.put_nowait((answer, delta))

    tasks = [asyncio.create_task(follow(answer)) for answer in range(prepared.answers)]
    open_answers = len(tasks)
    try:
        while open_answers:
            answer, delta = await merged.get()
            open_answers -= delta.finish_reason is not None
            yield answer, delta
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def whole(admission: Admission, prepared: Prepared, wire: AnswerWire) -> bytes:
    """The JSON body of an answer that is not streamed; raises EngineError if part of it was lost."""
    collected = [Collected(text=prepared.echo_of(answer)) for answer in range(prepared.answers)]
    async with aclosing(deltas(admission, prepared)) as parts:
        async for choice, delta in parts:
            collected[choice].add(delta)
    failed = next((answer.error for answer in collected if answer.error), None)
    if failed is not None:
        raise failed
    if prepared.tells_logprobs:
        # Those of a long prompt are a hundred thousand entries.
        return await asyncio.to_thread(_body, prepared, wire, collected)
    return _body(prepared, wire, collected)


def _body(prepared: Prepared, wire: AnswerWire, collected: list[Collected]) -> bytes:
    requests = [answer.request for answer in collected if answer.request is not None]
    choices: list[dict[str, Any]] = []
    of_prompts: list[Any] = []
    for index, answer in enumerate(collected):
        logprobs = _logprobs(wire, prepared, index)
        first = requests[prepared.first_of(index)]
        told = joined(_of_echo(logprobs, prepared, index, first), logprobs.push(answer.logprobs))
        choices.append(_choice(wire, index, answer, prepared) | {"logprobs": told})
        if prepared.prompt_logprobs is not None:
            of_prompts.append(logprobs.of_prompt(first.prompt_logprobs, prepared.prompt_logprobs))
    body = wire.body(choices, requests, time.monotonic(), len(prepared.choices))
    if prepared.tells_token_ids:
        wire.tell_prompt(body, [prepared.prompt_of(answer).token_ids for answer in range(prepared.answers)])
    if wire.kind == "chat":
        return msgspec.json.encode(body | ({"prompt_logprobs": of_prompts[0]} if of_prompts else {}))
    for choice, of_prompt in zip(choices, of_prompts, strict=False):
        choice["prompt_logprobs"] = of_prompt
    return msgspec.json.encode(body)


def _logprobs(wire: AnswerWire, prepared: Prepared, answer: int) -> LogprobWire:
    return wire.logprobs(
        at=len(prepared.echo_of(answer)),
        shows_special=prepared.shows_special,
        by_id=prepared.names_tokens_by_id,
    )


def _of_echo(logprobs: LogprobWire, prepared: Prepared, answer: int, first: Request) -> dict[str, Any] | None:
    """The log-probabilities of an echoed prompt, if requested; `first` is the first answer to it, in progress."""
    if not prepared.echoes or prepared.logprobs is None:
        return None
    return logprobs.of_echo(prepared.prompt_of(answer), first.prompt_logprobs, prepared.logprobs)


def _choice(wire: AnswerWire, index: int, answer: Collected, prepared: Prepared) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "index": index,
        **ending_of(answer.finish_reason or "stop", answer.stop_string),
    }
    if prepared.tells_token_ids:
        entry["token_ids"] = answer.token_ids
    if wire.kind == "text":
        return entry | {"text": answer.text}
    thought, text = "", answer.text
    if (thinking := _thinking_split(prepared)) is not None:
        thought, text = thinking.push(text, is_last=True)
    message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None}
    if thought and prepared.shows_thoughts:
        message["reasoning_content"] = thought
    if (split := _tool_split(prepared)) is not None:
        message["content"], calls = whole_calls(split.push(text, is_last=True))
        if calls:
            entry["finish_reason"] = split.finish_of(entry["finish_reason"])
            message |= {"content": message["content"].strip() or None, "tool_calls": calls}
    return entry | {"message": message}


def _tool_split(prepared: Prepared) -> ToolSplit | None:
    if prepared.tools is None:
        return None
    return ToolSplit(prepared.tools, most_calls=prepared.most_calls, takes_unmarked=prepared.calls_unmarked)


def _thinking_split(prepared: Prepared) -> ThinkingSplit | None:
    if prepared.thinking is None:
        return None
    if (tools := prepared.tools) is None:
        return ThinkingSplit(prepared.thinking)
    return ThinkingSplit(prepared.thinking, lambda: ToolCallParser(tools.keys(), tools, takes_unmarked=False))


class _Choice:
    """Writes one choice of a streamed answer."""

    def __init__(self, wire: AnswerWire, prepared: Prepared, index: int) -> None:
        self._wire = wire
        self._prepared = prepared
        self._index = index
        self._prompt_ids = prepared.prompt_of(index).token_ids
        self._thinking = _thinking_split(prepared)
        self._split = _tool_split(prepared)
        self._has_parts = self._thinking is not None or self._split is not None
        self._logprobs = _logprobs(wire, prepared, index)
        self._told = 0

    def begin(self) -> Iterator[bytes]:
        """What precedes its output."""
        if self._wire.kind == "chat":
            yield self._chunk({"role": "assistant", "content": ""}, is_first=True)
        elif self._prepared.tells_token_ids:
            yield self._chunk({}, is_first=True)

    async def echo(self, first: Request) -> bytes:
        """Its prompt; `first` is the first answer to it."""
        told = await asyncio.to_thread(_of_echo, self._logprobs, self._prepared, self._index, first)
        return self._chunk({"content": self._prepared.echo_of(self._index)}, told)

    def push(self, delta: Delta) -> Iterator[bytes]:
        self._told += len(delta.token_ids)
        shown = self._logprobs.push(delta.logprobs)
        ids = delta.token_ids if self._prepared.tells_token_ids else []
        text, finish = delta.text, delta.finish_reason
        if self._has_parts:
            for piece in self._parts(text, is_last=finish is not None):
                yield self._chunk(piece, shown, ids=ids)
                shown, ids = None, list[int]()
            text = ""
        if finish is not None and self._wire.kind == "text":
            yield self._chunk({"content": text}, shown, ending_of(finish, delta.stop_string), ids=ids)
            return
        if text or shown or ids:
            yield self._chunk({"content": text}, shown, ids=ids)
        if finish is not None:  # a chat's end is a separate chunk, as OpenAI sends it
            finish = finish if self._split is None else self._split.finish_of(finish)
            yield self._chunk({}, ending=ending_of(finish, delta.stop_string))

    def _parts(self, text: str, *, is_last: bool) -> list[dict[str, Any]]:
        """What has become certain: thoughts, calls, text."""
        thought = ""
        if self._thinking is not None:
            thought, text = self._thinking.push(text, is_last=is_last)
        thoughts = [{"reasoning_content": thought}] if thought and self._prepared.shows_thoughts else []
        if self._split is not None:
            return thoughts + self._split.push(text, is_last=is_last)
        return [*thoughts, {"content": text}] if text else thoughts

    def _chunk(
        self,
        delta: dict[str, Any],
        shown: Any = None,
        ending: dict[str, Any] | None = None,
        *,
        ids: list[int] | None = None,
        is_first: bool = False,
    ) -> bytes:
        body = self._wire.chunk(self._index, delta, shown, ending)
        if self._prepared.tells_token_ids:
            body["choices"][0]["token_ids"] = ids or []
            if is_first:
                self._wire.tell_prompt(body, [self._prompt_ids])
        if self._prepared.counts_in_every_chunk:
            body["usage"] = usage(len(self._prompt_ids), self._told)
        return event(body)


async def events(admission: Admission, prepared: Prepared, wire: AnswerWire) -> AsyncGenerator[bytes]:
    """Server-sent events. A failure before the first event raises EngineError; a later one becomes an error event,
    without a [DONE]."""
    choices = [_Choice(wire, prepared, index) for index in range(prepared.answers)]
    requests: dict[int, Request] = {}
    async with aclosing(deltas(admission, prepared)) as parts:
        async for index, delta in parts:
            if (error := error_of(delta)) is not None:
                if not requests:
                    raise error
                yield event(error_event(error))
                return
            choice = choices[index]
            if index not in requests:
                requests[index] = delta.request
                for chunk in choice.begin():
                    yield chunk
                if prepared.echoes:
                    yield await choice.echo(requests[prepared.first_of(index)])
            for chunk in choice.push(delta):
                yield chunk
    if prepared.wants_usage_chunk:
        ended = [requests[index] for index in sorted(requests)]
        yield event(wire.usage_chunk(ended, time.monotonic(), len(prepared.choices)))
    yield b"data: [DONE]\n\n"


def event(body: Any) -> bytes:
    """One server-sent event."""
    return b"data: " + msgspec.json.encode(body) + b"\n\n"
