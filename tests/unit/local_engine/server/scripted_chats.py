"""Chats answered by an engine that generates what a test says, whole and streamed."""

import json
from collections.abc import AsyncIterator
from typing import Any, cast

import msgspec

from local_engine.async_engine import Admission
from local_engine.engine_core import Delta
from local_engine.request import FinishReason, Request
from local_engine.sampling.constraints import ConstraintCompiler
from local_engine.sampling.sampling_params import SamplingParams
from local_engine.server.answer_stream import events, whole
from local_engine.server.chat import Model, Prepared, prepare_chat
from local_engine.server.openai_answers import AnswerWire, whole_calls
from local_engine.text.tokenizer import Tokenizer
from tests.unit.local_engine.text.thinking_template import TEMPLATE, tokenizer


class Says:
    """Generates one token per delta."""

    def __init__(self, reads: Tokenizer, text: str, ends: FinishReason = "stop") -> None:
        self._ids, self._reads = reads.encode(text, with_bos=False), reads
        self._ends: FinishReason = ends

    async def generate(self, prompt: list[int], params: SamplingParams, **_: Any) -> AsyncIterator[Delta]:
        request = Request("r", prompt, params)
        for number, one in enumerate(self._ids, 1):
            request.token_ids.append(one)
            ends = self._ends if number == len(self._ids) else None
            yield Delta(request, self._reads.decode([one]), [one], finish_reason=ends)


def asked(reads: Tokenizer, **changes: Any) -> Prepared:
    model = Model(reads, ConstraintCompiler(reads, reads.vocabulary_size), 4096, reads.vocabulary_size)
    body = {"messages": [{"role": "user", "content": "What?"}], "max_tokens": 500} | changes
    return prepare_chat(json.dumps(body).encode(), model)


async def answer(
    text: str,
    *,
    template: str | None = TEMPLATE,
    ends: FinishReason = "stop",
    reads: Tokenizer | None = None,
    **changes: Any,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """(the message with its finish reason, the usage), from a whole answer and assembled from a stream, which agree."""
    reads = reads or tokenizer(template)
    prepared = asked(reads, **changes)
    engine, wire = cast(Admission, Says(reads, text, ends)), AnswerWire(prepared.kind, "m", reads, prepared.thinking)
    body = msgspec.json.decode(await whole(engine, prepared, wire))
    told = {**body["choices"][0]["message"], "finish_reason": body["choices"][0]["finish_reason"]}
    streamed = asked(reads, **changes, stream=True, stream_options={"include_usage": True})
    made: dict[str, Any] = {}
    deltas: list[dict[str, Any]] = []
    async for event in events(engine, streamed, wire):
        if event == b"data: [DONE]\n\n":
            continue
        chunk = msgspec.json.decode(event.removeprefix(b"data: "))
        for choice in chunk["choices"]:
            deltas.append(choice["delta"])
            for name, piece in choice["delta"].items():
                made[name] = made.get(name, "") + piece if isinstance(piece, str) else piece
            made["finish_reason"] = choice["finish_reason"]
        if usage := chunk.get("usage"):
            assert usage == body["usage"]
    for name in ("reasoning_content", "content"):
        assert (made.get(name) or "").strip() == (told.get(name) or "").strip()
    assert made["finish_reason"] == told["finish_reason"]
    [streamed_calls, told_calls] = [whole_calls(deltas)[1], told.get("tool_calls", [])]
    assert [call["function"] for call in streamed_calls] == [call["function"] for call in told_calls]
    assert all(call["id"] and call["type"] == "function" for call in streamed_calls)
    return told, body["usage"]
