"""Which models are told how hard to think: those that think, and those that ignore the setting."""

import json
from dataclasses import replace
from typing import Any

import pytest

from gateway.request.run import Incoming
from tests.builders import make_snapshot
from tests.rig import KEY, A, B, RecordingCaller, Rig
from tests.unit.gateway.composition.asked_block import ask_block

CHAT = {"object": "chat.completion", "model": "m", "choices": [{"index": 0, "message": {"content": "Paris."}}]}
HELLO = [{"role": "user", "content": "hi"}]


def message(effort: str) -> dict[str, Any]:
    return {"model": "x", "max_tokens": 9, "messages": HELLO, "output_config": {"effort": effort}}


RESPONSE = {"model": "x", "input": "hi", "reasoning": {"effort": "medium", "summary": "auto"}}


@pytest.mark.parametrize(
    ("provider", "operation", "body", "reasons", "told"),
    [
        ("openai", "messages", message("high"), True, "high"),
        ("openai", "messages", message("xhigh"), True, "xhigh"),
        ("openai", "messages", message("max"), True, "xhigh"),
        ("groq", "messages", message("max"), True, "high"),
        ("openai", "messages", message("as hard as you can"), True, None),
        ("openai", "messages", message("high"), False, None),
        ("another", "messages", message("high"), False, None),
        ("another", "responses", RESPONSE, False, "medium"),
        ("mistral", "responses", RESPONSE, True, "medium"),
        ("mistral", "responses", RESPONSE, False, None),
        ("groq", "responses", RESPONSE, False, None),
        ("xai", "responses", RESPONSE, False, None),
    ],
)
async def test_who_is_told(provider: str, operation: Any, body: Any, reasons: bool, told: str | None) -> None:
    scripted, _ = await ask_block({"provider": provider}, operation, body, answer=CHAT, reasons=reasons)
    assert scripted.received[0].json.get("reasoning_effort") == told


@pytest.mark.parametrize("reasons", [False, True])
async def test_a_model_thinks_where_its_entry_says_so(reasons: bool) -> None:
    rig = Rig()
    thinking = {"streaming", "reasoning"} if reasons else {"streaming"}
    rig.pipeline.snapshot = make_snapshot(candidates=[replace(A, supports=frozenset(thinking)), B])
    body = json.dumps(message("low") | {"model": "a"}).encode()
    await rig.pipeline.answer(Incoming("messages", f"Bearer {KEY}", body), RecordingCaller())
    assert json.loads(rig.one.calls[0].body).get("reasoning_effort") == ("low" if reasons else None)
