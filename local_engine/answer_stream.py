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
from local_engine.openai_answers import AnswerWire, Collected, ToolSplit, error_body
from local_engine.request import Request

FINISH = {"stop": "stop", "length": "length", "cancelled": "stop", "error": "stop"}


async def deltas(engine: AsyncEngine, prepared: Prepared) -> AsyncIterator[tuple[int, Delta]]:
    """Deltas of all choices as they come. The first choice computes the prompt; the others start from its cache."""
    merged: asyncio.Queue[tuple[int, Delta]] = asyncio.Queue()
    prompt_done = asyncio.Event()

    async def follow(choice: int) -> None:
        if choice:
            await prompt_done.wait()
        stream = engine.generate(
            prepared.prompt_token_ids,
            prepared.choices[choice],
            cache_salt=prepared.cache_salt,
            priority=prepared.priority,
        )
        async with aclosing(stream) as own:  # pyright: ignore[reportArgumentType]
            async for delta in own:
                prompt_done.set()
                merged.put_nowait((choice, delta))

    tasks = [asyncio.create_task(follow(choice)) for choice in range(len(prepared.choices))]
    open_choices = len(tasks)
    try:
        while open_choices:
            choice, delta = await merged.get()
            open_choices -= delta.finish_reason is not None
            yield choice, delta
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def whole(engine: AsyncEngine, prepared: Prepared, wire: AnswerWire) -> dict[str, Any]:
    """The body of an answer that does not stream; raises StepFailed when part of it was lost."""
    collected = [Collected() for _ in prepared.choices]
    async with aclosing(deltas(engine, prepared)) as parts:  # pyright: ignore[reportArgumentType]
        async for choice, delta in parts:
            collected[choice].add(delta)
    failed = next((answer.error for answer in collected if answer.error), None)
    if failed:
        raise StepFailed(failed)
    requests = [answer.request for answer in collected if answer.request is not None]
    choices = [_choice(wire, index, answer, has_tools=prepared.has_tools) for index, answer in enumerate(collected)]
    return wire.body(choices, requests, time.monotonic())


def _choice(wire: AnswerWire, index: int, answer: Collected, *, has_tools: bool) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "index": index,
        "logprobs": wire.logprobs(answer.logprobs),
        "finish_reason": FINISH[answer.finish_reason or "stop"],
    }
    if wire.kind == "text":
        return entry | {"text": answer.text}
    message: dict[str, Any] = {"role": "assistant", "content": answer.text, "refusal": None}
    if has_tools:
        split = ToolSplit()
        text, calls = split.push(answer.text, is_last=True)
        if calls:
            entry["finish_reason"] = "tool_calls"
            message |= {"content": text.strip() or None, "tool_calls": calls}
    return entry | {"message": message}


async def events(engine: AsyncEngine, prepared: Prepared, wire: AnswerWire) -> AsyncIterator[bytes]:
    """Server-sent events. A failure after the first byte is an error event, and no [DONE] follows it."""
    requests: dict[int, Request] = {}
    splits = [ToolSplit() if prepared.has_tools else None for _ in prepared.choices]
    async with aclosing(deltas(engine, prepared)) as parts:  # pyright: ignore[reportArgumentType]
        async for choice, delta in parts:
            if delta.error is not None:
                yield event(error_body(delta.error, kind="server_error", code="engine_error"))
                return
            if choice not in requests and wire.kind == "chat":
                yield event(wire.chunk(choice, {"role": "assistant", "content": ""}))
            requests[choice] = delta.request
            logprobs = wire.logprobs(delta.logprobs)
            text, finish, split = delta.text, FINISH.get(delta.finish_reason or ""), splits[choice]
            if split is not None:
                text, calls = split.push(text, is_last=finish is not None)
                for position, call in enumerate(calls, split.calls - len(calls)):
                    yield event(wire.chunk(choice, {"tool_calls": [{"index": position} | call]}))
                finish = "tool_calls" if finish and split.calls else finish
            if text or logprobs:
                yield event(wire.chunk(choice, {"content": text}, logprobs))
            if finish is not None:
                yield event(wire.chunk(choice, {}, finish=finish))
    if prepared.wants_usage_chunk:
        yield event(wire.usage_chunk([requests[choice] for choice in sorted(requests)], time.monotonic()))
    yield b"data: [DONE]\n\n"


def event(body: Any) -> bytes:
    """One server-sent event."""
    return b"data: " + msgspec.json.encode(body) + b"\n\n"
