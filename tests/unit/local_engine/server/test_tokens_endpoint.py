"""Tokenizing and detokenizing, in vLLM's format."""

from typing import Any

import httpx
import pytest

from tests.unit.local_engine.asking import HI, VOCABULARY, WEATHER, chat

PICTURE = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]
LEFT_OPEN = [*HI["messages"], {"role": "assistant", "content": "I say"}]


async def test_tokens_there_and_back(client: httpx.AsyncClient) -> None:
    cut = (await client.post("/tokenize", json={"prompt": "naïve", "return_token_strs": True})).json()
    assert cut["token_strs"] == ["n", "a", "Ã", "¯", "v", "e"], "as the vocabulary has them"
    assert cut["count"] == len(cut["tokens"]) == len(cut["token_strs"]) == 6
    assert cut["max_model_len"] == 128
    assert (await client.post("/detokenize", json={"tokens": cut["tokens"]})).json() == {"prompt": "naïve"}
    assert (await client.post("/tokenize", json={"content": "naïve"})).json()["tokens"] == cut["tokens"]
    assert (await client.post("/tokenize", json={"prompt": "naïve"})).json() == cut | {"token_strs": None}
    messages = (await client.post("/tokenize", json={"messages": HI["messages"]})).json()
    assert messages["count"] == (await chat(client))["usage"]["prompt_tokens"]
    info = (await client.get("/tokenizer_info")).json()
    assert (info["bos_token"], info["eos_token"], info["pad_token"]) == ("<s>", "</s>", None)
    assert "messages" in info["chat_template"]
    for path, body in (("tokenize", {}), ("detokenize", {"tokens": [VOCABULARY]}), ("detokenize", {"tokens": [-1]})):
        assert (await client.post(f"/{path}", json=body)).status_code == 400


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"tools": [WEATHER]},
        {"tools": [WEATHER], "tool_choice": "none"},
        {"messages": LEFT_OPEN, "continue_final_message": True, "add_generation_prompt": False},
        {"chat_template_kwargs": {"enable_thinking": False}, "reasoning_effort": "none"},
        {"add_special_tokens": False},
    ],
)
async def test_a_chat_has_as_many_tokens_as_its_answer_says(client: httpx.AsyncClient, asked: dict[str, Any]) -> None:
    counted = (await client.post("/tokenize", json=HI | asked)).json()
    assert counted["count"] == (await chat(client, **asked))["usage"]["prompt_tokens"]
    assert counted["token_strs"] is None


@pytest.mark.parametrize(
    "asked",
    [
        {"messages": PICTURE},
        {"messages": [{"role": "nobody", "content": "hi"}]},
        {"tools": [{"type": "function"}]},
        {"chat_template": "{{ messages }}"},
        {"messages": 1},
        {"messages": [1]},
    ],
)
async def test_what_a_chat_refuses_is_not_counted(client: httpx.AsyncClient, asked: dict[str, Any]) -> None:
    counted, answered = [await client.post(path, json=HI | asked) for path in ("/tokenize", "/v1/chat/completions")]
    assert (counted.status_code, answered.status_code) == (400, 400)
    assert counted.json()["error"]["param"] == answered.json()["error"]["param"]


async def test_a_chat_longer_than_the_window_is_counted_beside_what_the_window_has(client: httpx.AsyncClient) -> None:
    long = [{"role": "user", "content": "x" * 40_000}]
    counted = (await client.post("/tokenize", json={"messages": long})).json()
    assert counted["count"] > 40_000 > counted["max_model_len"] == 128
