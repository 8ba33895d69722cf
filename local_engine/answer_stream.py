"""One request's answers while they are computed: all choices merged, as one body or as server-sent events. No HTTP."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import msgspec

from local_engine.async_engine import AsyncEngine
from local_engine.chat import Prepared
from local_engine.engine_core import Delta
from local_engine.errors import StepFailed
from local_engine.openai_answers import AnswerWire, Collected, ToolSplit, ending_of, error_body, usage
from local_engine.request import Request

FINISH = {"stop": "stop", "length": "length", "cancelled": "stop", "error": "stop"}


async def deltas(engine: AsyncEngine, prepared: Prepared) -> AsyncIterator[tuple[int, Delta]]:
    """Deltas of all answers as they come. A prompt's first answer computes it; the others start from its cache."""
    merged: asyncio.Queue[tuple[int, Delta]] = asyncio.Queue()
    computed = [asyncio.Event() for _ in prepared.prompts]

    async def follow(answer: int) -> None:
        prompt = prepared.prompt_of(answer)
        if answer % len(prepared.choices):
            await computed[prompt].wait()
        stream = engine.generate(
            prepared.prompts[prompt],
            prepared.params_of(answer),
            cache_salt=prepared.cache_salt,
            priority=prepared.priority,
        )
        async with aclosing(stream) as own:  # pyright: ignore[reportArgumentType]
            async for delta in own:
                computed[prompt].set()
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


async def whole(engine: AsyncEngine, prepared: Prepared, wire: AnswerWire) -> dict[str, Any]:
    """The body of an answer that does not stream; raises StepFailed when part of it was lost."""
    collected = [Collected(text=prepared.echo_of(answer)) for answer in range(prepared.answers)]
    async with aclosing(deltas(engine, prepared)) as parts:  # pyright: ignore[reportArgumentType]
        async for choice, delta in parts:
            collected[choice].add(delta)
    failed = next((answer.error for answer in collected if answer.error), None)
    if failed:
        raise StepFailed(failed)
    requests = [answer.request for answer in collected if answer.request is not None]
    choices = [_choice(wire, index, answer, prepared) for index, answer in enumerate(collected)]
    return wire.body(choices, requests, time.monotonic(), len(prepared.choices))


def _choice(wire: AnswerWire, index: int, answer: Collected, prepared: Prepared) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "index": index,
        "logprobs": wire.logprobs(answer.logprobs),
        **ending_of(FINISH[answer.finish_reason or "stop"], answer.stop_string),
    }
    if wire.kind == "text":
        return entry | {"text": answer.text}
    message: dict[str, Any] = {"role": "assistant", "content": answer.text, "refusal": None}
    if prepared.has_tools:
        split = ToolSplit(prepared.most_calls)
        text, calls = split.push(answer.text, is_last=True)
        if calls:
            entry["finish_reason"] = "tool_calls"
            message |= {"content": text.strip() or None, "tool_calls": calls}
    return entry | {"message": message}


async def events(engine: AsyncEngine, prepared: Prepared, wire: AnswerWire) -> AsyncIterator[bytes]:
    """Server-sent events. A failure after the first byte is an error event, and no [DONE] follows it."""
    requests: dict[int, Request] = {}
    splits = [ToolSplit(prepared.most_calls) if prepared.has_tools else None for _ in range(prepared.answers)]
    shown = [0] * prepared.answers
    told = [0] * prepared.answers

    def chunk(choice: int, delta: dict[str, Any], logprobs: Any = None, ending: dict[str, Any] | None = None) -> bytes:
        body = wire.chunk(choice, delta, logprobs, ending)
        if prepared.counts_in_every_chunk:
            body["usage"] = usage(len(prepared.prompts[prepared.prompt_of(choice)]), told[choice])
        return event(body)

    async with aclosing(deltas(engine, prepared)) as parts:  # pyright: ignore[reportArgumentType]
        async for choice, delta in parts:
            if delta.error is not None:
                yield event(error_body(delta.error, kind="server_error", code="engine_error"))
                return
            if choice not in requests and wire.kind == "chat":
                yield chunk(choice, {"role": "assistant", "content": ""})
            if choice not in requests and (echo := prepared.echo_of(choice)):
                yield chunk(choice, {"content": echo})
            requests[choice] = delta.request
            told[choice] += len(delta.token_ids)
            logprobs = wire.logprobs(delta.logprobs, shown[choice])
            shown[choice] += wire.width(delta.logprobs)
            text, finish, split = delta.text, FINISH.get(delta.finish_reason or ""), splits[choice]
            if split is not None:
                text, calls = split.push(text, is_last=finish is not None)
                for position, call in enumerate(calls, split.calls - len(calls)):
                    yield chunk(choice, {"tool_calls": [{"index": position} | call]})
                finish = "tool_calls" if finish and split.calls else finish
            if text or logprobs:
                yield chunk(choice, {"content": text}, logprobs)
            if finish is not None:
                yield chunk(choice, {}, ending=ending_of(finish, delta.stop_string))
    if prepared.wants_usage_chunk:
        ended = [requests[choice] for choice in sorted(requests)]
        yield event(wire.usage_chunk(ended, time.monotonic(), len(prepared.choices)))
    yield b"data: [DONE]\n\n"


def event(body: Any) -> bytes:
    """One server-sent event."""
    return b"data: " + msgspec.json.encode(body) + b"\n\n"
