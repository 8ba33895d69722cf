"""Which blocks get earlier thinking: those that are known to want it."""

import json
from typing import Any

import pytest

from backends.protocol import Call
from gateway.composition.backend_table import build_backend_table
from gateway.config.engine_curve import ASSUMED, fit_engine
from gateway.config.settings import Settings
from tests.scripted_provider import Raw, ScriptedProvider
from tests.unit.gateway.composition.asked_block import ask_block

CHAT = {"object": "chat.completion", "model": "m", "choices": [{"index": 0, "message": {"content": "Paris."}}]}
THINKING = {"type": "thinking", "thinking": "hm", "signature": "breakeven"}
USE = {"type": "tool_use", "id": "t1", "name": "f", "input": {}}
MESSAGE = {
    "model": "x",
    "max_tokens": 9,
    "messages": [
        {"role": "user", "content": "Where?"},
        {"role": "assistant", "content": [THINKING, USE]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "Paris"}]},
    ],
}
REASONING = {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "hm"}]}
CALL = {"type": "function_call", "call_id": "t1", "name": "f", "arguments": "{}"}
RESPONSE = {"model": "x", "input": [REASONING, CALL, {"type": "function_call_output", "call_id": "t1", "output": "P"}]}


@pytest.mark.parametrize(
    ("block", "names"),
    [
        ({"health_from": "vllm"}, {"reasoning", "reasoning_content"}),
        ({"health_from": "sglang"}, {"reasoning", "reasoning_content"}),
        ({"health_from": "engine"}, {"reasoning", "reasoning_content"}),
        ({"provider": "deepseek"}, {"reasoning_content"}),
        ({"provider": "openai"}, set[str]()),
        ({}, set[str]()),
    ],
)
@pytest.mark.parametrize(("operation", "body"), [("messages", MESSAGE), ("responses", RESPONSE)])
async def test_who_is_told(operation: Any, body: Any, block: dict[str, Any], names: set[str]) -> None:
    provider, _ = await ask_block(block, operation, body, answer=CHAT)
    said: dict[str, Any] = next(
        message for message in json.loads(provider.received[0].body)["messages"] if message["role"] == "assistant"
    )
    assert {name: said[name] for name in said.keys() - {"role", "content", "tool_calls"}} == dict.fromkeys(names, "hm")


async def test_the_bundled_engine_is_told() -> None:
    answer = Raw((json.dumps(CHAT).encode(),), headers={"content-type": "application/json"})
    async with ScriptedProvider(answer) as provider:
        settings = Settings.model_validate({"simulated_hosted": "never"})
        table = build_backend_table(settings, {}, provider.base_url, fit_engine(ASSUMED))
        engine = table.adapters["local"]
        reply = await engine.open(Call("messages", "m", json.dumps(MESSAGE).encode(), False, "r-1"))
        assert [chunk async for chunk in reply]
        await engine.aclose()
    assert json.loads(provider.received[0].body)["messages"][1]["reasoning_content"] == "hm"


async def test_anthropic_is_sent_no_thinking_of_ours() -> None:
    provider, _ = await ask_block({"wire_format": "anthropic"}, "messages", MESSAGE)
    sent: Any = provider.received[0].json
    assert [message["content"] for message in sent["messages"]][1] == [USE]
