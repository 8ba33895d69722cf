"""Token ids beside the texts, in the same fields as vLLM's, for training on answers or scoring them again."""

import json
from typing import Any

import httpx
import pytest

from tests.unit.local_engine.asking import HI, WEATHER, chat, complete, streamed

IDS: dict[str, Any] = {"return_token_ids": True}


async def ids_of(client: httpx.AsyncClient, **body: Any) -> list[int]:
    return (await client.post("/tokenize", json=body)).json()["tokens"]


async def test_a_completion_tells_each_prompts_ids_and_its_answers(client: httpx.AsyncClient) -> None:
    body = await complete(client, **IDS, prompt=["hi", "ho ho"], n=2, logprobs=0, return_tokens_as_token_ids=True)
    prompts = [await ids_of(client, prompt=text) for text in ("hi", "hi", "ho ho", "ho ho")]
    assert [choice["prompt_token_ids"] for choice in body["choices"]] == prompts
    for choice in body["choices"]:
        assert choice["logprobs"]["tokens"] == [f"token_id:{token}" for token in choice["token_ids"]]
        assert len(choice["token_ids"]) == 4
    without = await complete(client)
    assert not {"token_ids", "prompt_token_ids"} & without["choices"][0].keys()


async def test_a_chat_tells_its_prompts_ids_once_and_its_end(client: httpx.AsyncClient) -> None:
    ends: dict[str, Any] = {"logit_bias": {"257": 100}}
    body = await chat(client, **IDS, **ends, n=2, logprobs=True, top_logprobs=1, return_tokens_as_token_ids=True)
    assert body["prompt_token_ids"] == await ids_of(client, messages=HI["messages"])
    assert [choice["token_ids"] for choice in body["choices"]] == [[257], [257]], "the end is a token as others are"
    [entry] = body["choices"][0]["logprobs"]["content"]
    assert (entry["token"], bytes(entry["bytes"])) == ("token_id:257", b"</s>")


@pytest.mark.parametrize("changes", [{}, {"echo": True, "logprobs": 0}, {"n": 2, "stop": ["z"]}], ids=str)
async def test_a_streamed_completion_tells_the_same(client: httpx.AsyncClient, changes: dict[str, Any]) -> None:
    whole = (await complete(client, **IDS, **changes))["choices"]
    told: list[list[int]] = [[] for _ in whole]
    prompts: list[list[list[int]]] = [[] for _ in whole]
    for chunk in await streamed(client, **IDS, **changes):
        [choice] = chunk["choices"]
        told[choice["index"]] += choice["token_ids"]
        prompts[choice["index"]] += [choice["prompt_token_ids"]] if "prompt_token_ids" in choice else []
    assert told == [choice["token_ids"] for choice in whole]
    assert prompts == [[choice["prompt_token_ids"]] for choice in whole]


async def test_a_streamed_chat_tells_the_same_of_calls_whose_text_is_withheld(client: httpx.AsyncClient) -> None:
    call = '<tool_call>{"name": "weather"}</tool_call>'
    asked = HI | IDS | {"tools": [WEATHER], "max_tokens": 100, "structured_outputs": {"choice": [call]}}
    whole = await chat(client, **asked)
    answer = await client.post("/v1/chat/completions", json=asked | {"stream": True})
    lines = [line.removeprefix("data: ") for line in answer.text.split("\n\n") if line]
    chunks: list[dict[str, Any]] = [json.loads(line) for line in lines[:-1]]
    assert [token for chunk in chunks for token in chunk["choices"][0]["token_ids"]] == whole["choices"][0]["token_ids"]
    assert [chunk.get("prompt_token_ids") for chunk in chunks] == [whole["prompt_token_ids"], *[None] * len(chunks[1:])]
