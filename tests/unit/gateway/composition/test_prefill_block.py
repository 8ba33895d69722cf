"""Which blocks are asked to continue the assistant's last message: those that are known to be able to."""

import json
from typing import Any

import pytest

from backends.protocol import Call
from gateway.composition.backend_table import build_backend_table
from gateway.config.engine_curve import ASSUMED, fit_engine
from gateway.config.settings import Settings
from tests.scripted_provider import Raw, ScriptedProvider

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
    answer = Raw((json.dumps(CHAT).encode(),), headers={"content-type": "application/json"})
    async with ScriptedProvider(answer) as provider:
        settings = Settings.model_validate(
            {"simulated_hosted": "never", "backends": {"mine": {"base_url": provider.base_url, **block}}}
        )
        backend = build_backend_table(settings, {}, None, fit_engine(ASSUMED)).adapters["mine"]
        reply = await backend.open(Call("messages", "m", json.dumps(PREFILLED).encode(), False, "r-1"))
        (chunk,) = [chunk async for chunk in reply]
        await backend.aclose()
    [received] = provider.received
    assert json.loads(received.body).get("continue_final_message") is goes_on
    assert json.loads(chunk.payload)["content"] == [{"type": "text", "text": " Paris."}]
