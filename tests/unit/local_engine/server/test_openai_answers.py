"""Answers as checked by other servers' test suites, from a tiny random model in this process."""

from typing import Any

import httpx
import pytest

from tests.unit.local_engine.asking import WEATHER, chat, complete, streamed


async def test_prompts_in_a_batch_are_answered_as_alone(client: httpx.AsyncClient) -> None:
    """As texts or ids, in order, each n times; a prompt's tokens are counted once."""
    alone = [(await complete(client, prompt=prompt))["choices"][0]["text"] for prompt in ("hi", "ho ho")]
    body = await complete(client, prompt=["hi", "ho ho"], n=2)
    assert [choice["index"] for choice in body["choices"]] == [0, 1, 2, 3]
    assert [choice["text"] for choice in body["choices"]] == [alone[0], alone[0], alone[1], alone[1]]
    assert body["usage"]["prompt_tokens"] == 2 + 5
    assert body["usage"]["completion_tokens"] == 4 * 4
    assert body["usage"]["total_tokens"] == 7 + 16
    tokens = [(await client.post("/tokenize", json={"prompt": text})).json()["tokens"] for text in ("hi", "ho ho")]
    by_ids = await complete(client, prompt=tokens)
    assert [choice["text"] for choice in by_ids["choices"]] == alone
    one = await complete(client, prompt=tokens[1])
    assert [choice["text"] for choice in one["choices"]] == [alone[1]]


async def test_a_streamed_batch_says_the_same(client: httpx.AsyncClient) -> None:
    whole = await complete(client, prompt=["hi", "ho ho"], n=2, echo=True)
    options = {"include_usage": True}
    chunks = await streamed(client, prompt=["hi", "ho ho"], n=2, echo=True, stream_options=options)
    texts, ends = [""] * 4, [0] * 4
    for chunk in chunks[:-1]:
        [choice] = chunk["choices"]
        texts[choice["index"]] += choice["text"]
        ends[choice["index"]] += choice["finish_reason"] is not None
    assert texts == [choice["text"] for choice in whole["choices"]]
    assert [text[:2] for text in texts] == ["hi", "hi", "ho", "ho"]
    assert ends == [1, 1, 1, 1]
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["prompt_tokens"] == whole["usage"]["prompt_tokens"]
    assert chunks[-1]["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"]


async def test_a_streamed_completion_ends_with_its_last_text(client: httpx.AsyncClient) -> None:
    """SGLang's suite requires log-probabilities in every chunk, vLLM's no more chunks than tokens."""
    chunks = [chunk["choices"][0] for chunk in await streamed(client, logprobs=1, max_tokens=5, seed=2, temperature=1)]
    assert [chunk["finish_reason"] for chunk in chunks] == [None] * (len(chunks) - 1) + ["length"]
    assert all(chunk["logprobs"] for chunk in chunks)
    assert len(chunks) <= 5


@pytest.mark.parametrize("wanted", [0, 2])
async def test_logprobs_of_a_completion(client: httpx.AsyncClient, wanted: int) -> None:
    """The drawn token is always among the most likely ones; offsets point into the text."""
    settings = {"logprobs": wanted, "temperature": 2.0, "seed": 4, "max_tokens": 8}
    [choice] = (await complete(client, **settings))["choices"]
    found = choice["logprobs"]
    assert len(found["tokens"]) == len(found["token_logprobs"]) == len(found["top_logprobs"]) == 8
    for token, logprob, top in zip(found["tokens"], found["token_logprobs"], found["top_logprobs"], strict=True):
        # Parts of characters share one text, which reports the most likely of them.
        assert logprob <= top[token] <= 0
        assert logprob == top[token] or token == "\ufffd"
        assert 1 <= len(top) <= wanted + 1
        assert next(iter(top)) == token, "vLLM's suite reads the drawn token there"
    assert found["text_offset"][0] == 0
    assert found["text_offset"] == sorted(found["text_offset"])
    whole = [(token, at) for token, at in zip(found["tokens"], found["text_offset"], strict=True) if token != "\ufffd"]
    assert whole
    assert all(choice["text"].startswith(token, at) for token, at in whole)
    chunks = await streamed(client, **settings)
    parts = [chunk["choices"][0]["logprobs"] for chunk in chunks if chunk["choices"][0]["logprobs"]]
    for name in ("tokens", "token_logprobs", "text_offset"):
        assert [value for part in parts for value in part[name]] == found[name]


async def test_chat_logprobs_add_up_to_the_answer(client: httpx.AsyncClient) -> None:
    [choice] = (await chat(client, logprobs=True, top_logprobs=3))["choices"]
    entries = choice["logprobs"]["content"]
    raw = b"".join(bytes(entry["bytes"]) for entry in entries)
    assert raw.decode(errors="replace") == choice["message"]["content"]
    assert all(len(entry["top_logprobs"]) == 3 for entry in entries)
    assert all(entry["top_logprobs"][0]["logprob"] >= entry["logprob"] for entry in entries)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"structured_outputs": {"choice": ["red", 'naïve "x"']}}, ("red", 'naïve "x"')),
        ({"guided_choice": ["red", "blue"]}, ("red", "blue")),
        ({"guided_regex": "[0-9]{3}x"}, None),
        ({"guided_json": {"const": "42"}}, ('"42"',)),
        ({"guided_grammar": 'start: "abc"'}, ("abc",)),
        ({"grammar": 'root ::= "a"{5,5}'}, ("aaaaa",)),
        ({"json_schema": {"const": "42"}}, ('"42"',)),
        ({"response_format": {"type": "json_object", "schema": {"const": "42"}}}, ('"42"',)),
        ({"response_format": {"type": "json_schema", "schema": {"const": "42"}}}, ('"42"',)),
        ({"response_format": {"type": "json_object", "value": {"const": "42"}}}, ('"42"',)),
        ({"response_format": {"type": "json", "value": {"const": "42"}}}, ('"42"',)),
        ({"response_format": {"type": "regex", "value": "[0-9]{3}x"}}, None),
    ],
    ids=lambda value: str(value)[:30],
)
async def test_constraints_by_every_name(
    client: httpx.AsyncClient, changes: dict[str, Any], expected: tuple[str, ...] | None
) -> None:
    [choice] = (await chat(client, **changes, max_tokens=40, temperature=1.0, seed=1))["choices"]
    text = choice["message"]["content"]
    assert choice["finish_reason"] == "stop"
    assert text in expected if expected else text[:3].isdecimal() and text[3:] == "x"


async def test_a_temperature_next_to_nothing_is_greedy(client: httpx.AsyncClient) -> None:
    greedy = (await complete(client))["choices"][0]["text"]
    assert (await complete(client, temperature=1e-40, seed=7))["choices"][0]["text"] == greedy
    assert (await complete(client, temperature=1.0, top_p=0.0, seed=7))["choices"][0]["text"] == greedy
    assert (await complete(client, temperature=1.0, top_k=1, seed=7))["choices"][0]["text"] == greedy


async def test_a_bias_of_a_hundred_decides_every_token(client: httpx.AsyncClient) -> None:
    body = await complete(client, logit_bias={"65": 100}, presence_penalty=None)
    assert body["choices"][0]["text"] == (await client.post("/detokenize", json={"tokens": [65] * 4})).json()["prompt"]


async def test_one_call_where_several_are_not_wanted(client: httpx.AsyncClient) -> None:
    """The grammar makes the model write two calls; with parallel calls off, the second is not reported."""
    call = '<tool_call>{"name": "weather"}</tool_call>'
    forced: dict[str, Any] = {"tools": [WEATHER], "max_tokens": 100, "structured_outputs": {"choice": [call * 2]}}
    both = (await chat(client, **forced))["choices"][0]
    assert [call["function"]["name"] for call in both["message"]["tool_calls"]] == ["weather", "weather"]
    assert both["finish_reason"] == "tool_calls"
    one = (await chat(client, **forced, parallel_tool_calls=False))["choices"][0]
    assert [call["function"]["name"] for call in one["message"]["tool_calls"]] == ["weather"]


async def test_the_highest_seed_is_one_for_several_answers_too(client: httpx.AsyncClient) -> None:
    highest = 2**63 - 1
    body = {"temperature": 1.0, "max_tokens": 4, "seed": highest}
    both = (await complete(client, **body, n=2))["choices"]
    assert both[0]["text"] == (await complete(client, **body))["choices"][0]["text"]
    assert both[1]["text"] == (await complete(client, **body | {"seed": -highest - 1}))["choices"][0]["text"]
