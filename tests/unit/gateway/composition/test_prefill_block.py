"""Which blocks are asked to continue the assistant's last message: those that are known to be able to."""

import json
from typing import Any

import pytest

from tests.unit.gateway.composition.asked_block import ask_block

CHAT = {"object": "chat.completion", "model": "m", "choices": [{"index": 0, "message": {"content": " Paris."}}]}
PREFILLED = {
    "model": "x",
    "max_tokens": 9,
    "messages": [{"role": "user", "content": "Where?"}, {"role": "assistant", "content": "In"}],
}


@pytest.mark.parametrize(
    ("block", "goes_on"),
    [({"health_from": "vllm"}, True), ({"health_from": "sglang"}, True), ({"health_from": "engine"}, True), ({}, None)],
)
async def test_only_an_engine_is_told_to_go_on(block: dict[str, Any], goes_on: bool | None) -> None:
    provider, chunk = await ask_block(block, "messages", PREFILLED, answer=CHAT)
    [received] = provider.received
    assert json.loads(received.body).get("continue_final_message") is goes_on
    assert json.loads(chunk.payload)["content"] == [{"type": "text", "text": " Paris."}]
