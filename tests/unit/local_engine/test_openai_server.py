"""The wire as other servers' test suites ask about it, over a tiny random model in this process."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, cast

import httpx
import pytest
from starlette.applications import Starlette

from local_engine.assembly import Engine, assemble
from local_engine.config import EngineConfig
from local_engine.constraints import ConstraintCompiler
from local_engine.openai_server import build_app
from local_engine.safetensors_loader import load_safetensors
from local_engine.sampling_params import Constraint
from local_engine.tokenizer import Tokenizer
from tests.unit.local_engine.tiny_models import byte_level, make_model, write_folder

VOCABULARY = 258
HI: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 6, "temperature": 0}
TEXT: dict[str, Any] = {"prompt": "hi", "max_tokens": 4, "temperature": 0}
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    folder = write_folder(make_model("qwen2"), tmp_path_factory.mktemp("model"))
    config = EngineConfig(kv_blocks=64, context_window=128, max_running_requests=4, max_waiting_requests=4)
    return assemble(load_safetensors(folder), config)


def transport_of(app: Starlette) -> httpx.ASGITransport:
    return httpx.ASGITransport(app, raise_app_exceptions=False)


@pytest.fixture
async def client(engine: Engine) -> AsyncIterator[httpx.AsyncClient]:
    running = engine.serve()
    running.start()
    app = build_app(running, engine, model_name="tiny")
    async with httpx.AsyncClient(transport=transport_of(app), base_url="http://engine", timeout=300) as made:
        yield made
    await running.stop()


async def chat(client: httpx.AsyncClient, **changes: Any) -> dict[str, Any]:
    answer = await client.post("/v1/chat/completions", json=HI | changes)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def complete(client: httpx.AsyncClient, **changes: Any) -> dict[str, Any]:
    answer = await client.post("/v1/completions", json=TEXT | changes)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def streamed(client: httpx.AsyncClient, **changes: Any) -> list[dict[str, Any]]:
    answer = await client.post("/v1/completions", json=TEXT | changes | {"stream": True})
    events = [line.removeprefix("data: ") for line in answer.text.split("\n\n") if line]
    assert events[-1] == "[DONE]"
    return [json.loads(event) for event in events[:-1]]


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("completions", {"prompt": []}, "prompt"),
    ("completions", {"prompt": ""}, "prompt"),
    ("completions", {"prompt": [[5], []]}, "prompt"),
    ("completions", {"prompt": ["a", 3]}, "prompt"),
    ("completions", {"prompt": [999]}, "prompt"),
    ("completions", {"prompt": [-1]}, "prompt"),
    ("completions", {"prompt": [[1], [VOCABULARY]]}, "prompt"),
    ("completions", {"prompt": "a" * 200}, "prompt"),
    ("completions", {"prompt": ["a"] * 9}, "n"),
    ("completions", {"suffix": "x"}, "suffix"),
    ("completions", {"best_of": 2}, "best_of"),
    ("completions", {"use_beam_search": True}, "use_beam_search"),
    ("completions", {"prompt_logprobs": -1}, "prompt_logprobs"),
    ("completions", {"prompt_logprobs": 21}, "prompt_logprobs"),
    ("completions", {"prompt_logprobs": 0, "stream": True}, "prompt_logprobs"),
    ("completions", {"max_tokens": 0}, "max_tokens"),
    ("completions", {"max_tokens": 0, "echo": True, "prompt": "a" * 129}, "prompt"),
    ("completions", {"logprobs": 21}, "logprobs"),
    ("completions", {"stream_options": {"include_usage": None}}, "stream_options"),
    ("completions", {"stop_token_ids": [10**9], "min_tokens": 2}, "stop_token_ids"),
    ("completions", {"stop_token_ids": [-1], "min_tokens": 2}, "stop_token_ids"),
    ("completions", {"logit_bias": {str(VOCABULARY): 1}}, "logit_bias"),
    ("chat/completions", {"max_tokens": 0}, "max_tokens"),
    ("chat/completions", {"max_completion_tokens": 0}, "max_tokens"),
    ("chat/completions", {"prompt_logprobs": 0, "stream": True}, "prompt_logprobs"),
    ("chat/completions", {"top_logprobs": 2}, "top_logprobs"),
    ("chat/completions", {"functions": [{"name": "f"}]}, "functions"),
    ("chat/completions", {"tools": [{}]}, "tools"),
    ("chat/completions", {"tools": [{"function": "abc"}], "tool_choice": "required"}, "tools"),
    ("chat/completions", {"tools": [WEATHER], "tool_choice": {"function": "x"}}, "tool_choice"),
    ("chat/completions", {"tools": [WEATHER], "tool_choice": {"type": "allowed_tools"}}, "tool_choice"),
    ("chat/completions", {"tool_choice": "required"}, "tool_choice"),
    ("chat/completions", {"chat_template_kwargs": {"messages": 3}}, "messages"),
    ("chat/completions", {"response_format": {"type": "sound"}}, "response_format"),
    ("chat/completions", {"response_format": {"type": "json_object", "schema": 123}}, "response_format"),
    ("chat/completions", {"response_format": {"type": "json_object", "schema": {"type": "x"}}}, "response_format"),
    ("chat/completions", {"response_format": {"type": "json_object"}, "guided_regex": "a"}, "response_format"),
    ("chat/completions", {"guided_regex": "a", "guided_choice": ["b"]}, "structured_outputs"),
    ("chat/completions", {"structured_outputs": {"choice": []}}, "structured_outputs"),
    ("chat/completions", {"grammar": "root ::= (("}, "response_format"),
    ("chat/completions", {"structured_outputs": {"regex": "("}}, "response_format"),
]


async def test_a_byte_order_mark_is_ignored_and_other_encodings_are_told_what_to_be(client: httpx.AsyncClient) -> None:
    text = json.dumps(TEXT)
    answer = await client.post("/v1/completions", content=text.encode("utf-8-sig"))
    assert answer.json()["choices"] == (await complete(client))["choices"]
    refused = await client.post("/v1/completions", content=text.encode("utf-16"))
    assert refused.status_code == 400
    assert "JSON in UTF-8" in refused.json()["error"]["message"]


async def test_what_is_not_done_is_refused_by_name_and_the_engine_lives(client: httpx.AsyncClient) -> None:
    for path, changes, parameter in REFUSED:
        body = (HI if path.startswith("chat") else TEXT) | changes
        answer = await client.post(f"/v1/{path}", json=body)
        assert answer.status_code == 400, (changes, answer.text)
        error = answer.json()["error"]
        assert (error["type"], error["param"]) == ("invalid_request_error", parameter), changes
        assert error["message"]
    assert (await complete(client))["usage"]["completion_tokens"] == 4


async def test_a_body_that_no_window_holds_is_refused_unread(client: httpx.AsyncClient) -> None:
    refused = await client.post("/v1/completions", content=b'{"prompt": [' + b"1," * 9_000_000 + b"1]}")
    assert refused.status_code == 400
    assert "larger than" in refused.json()["error"]["message"]


async def test_prompts_in_a_batch_are_answered_as_alone(client: httpx.AsyncClient) -> None:
    """Texts or ids, in order, each n times; a prompt is counted once."""
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


@pytest.mark.parametrize("wanted", [0, 2])
async def test_logprobs_of_a_completion(client: httpx.AsyncClient, wanted: int) -> None:
    """The drawn token is always among the likeliest; offsets lead into the text."""
    settings = {"logprobs": wanted, "temperature": 2.0, "seed": 4, "max_tokens": 8}
    [choice] = (await complete(client, **settings))["choices"]
    found = choice["logprobs"]
    assert len(found["tokens"]) == len(found["token_logprobs"]) == len(found["top_logprobs"]) == 8
    for token, logprob, top in zip(found["tokens"], found["token_logprobs"], found["top_logprobs"], strict=True):
        # Halves of characters have one text among them, which tells of the likeliest.
        assert logprob <= top[token] <= 0
        assert logprob == top[token] or token == "\ufffd"
        assert 1 <= len(top) <= wanted + 1
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
    """Two calls are what the grammar makes the model write; with parallel calls off the second is not told."""
    call = '<tool_call>{"name": "weather"}</tool_call>'
    forced: dict[str, Any] = {"tools": [WEATHER], "max_tokens": 100, "structured_outputs": {"choice": [call * 2]}}
    both = (await chat(client, **forced))["choices"][0]
    assert [call["function"]["name"] for call in both["message"]["tool_calls"]] == ["weather", "weather"]
    assert both["finish_reason"] == "tool_calls"
    one = (await chat(client, **forced, parallel_tool_calls=False))["choices"][0]
    assert [call["function"]["name"] for call in one["message"]["tool_calls"]] == ["weather"]


async def test_tokens_there_and_back(client: httpx.AsyncClient) -> None:
    cut = (await client.post("/tokenize", json={"prompt": "naïve", "return_token_strs": True})).json()
    assert cut["count"] == len(cut["tokens"]) == len(cut["token_strs"]) == 6
    assert cut["max_model_len"] == 128
    assert (await client.post("/detokenize", json={"tokens": cut["tokens"]})).json() == {"prompt": "naïve"}
    assert (await client.post("/tokenize", json={"content": "naïve"})).json()["tokens"] == cut["tokens"]
    messages = (await client.post("/tokenize", json={"messages": HI["messages"]})).json()
    assert messages["count"] == (await chat(client))["usage"]["prompt_tokens"]
    info = (await client.get("/tokenizer_info")).json()
    assert (info["bos_token"], info["eos_token"], info["pad_token"]) == ("<s>", "</s>", None)
    assert "messages" in info["chat_template"]
    for path, body in (("tokenize", {}), ("detokenize", {"tokens": [VOCABULARY]}), ("detokenize", {"tokens": [-1]})):
        assert (await client.post(f"/{path}", json=body)).status_code == 400


async def test_another_servers_path_is_told_what_there_is(client: httpx.AsyncClient) -> None:
    for path in ("/generate", "/score", "/version"):
        answer = await client.get(path)
        assert answer.status_code == 404
        message = answer.json()["error"]["message"]
        assert message.startswith(f"{path} is not served")
        assert "/v1/completions" in message


class BrokenEncoder:
    """An embedding model with a fault of our own in it."""

    name = "broken"
    dimensions = 3
    context_window = 9

    def encode(self, texts: list[str]) -> None:
        raise ZeroDivisionError(texts)


async def test_the_embedding_model_is_listed_and_found_by_name(engine: Engine) -> None:
    app = build_app(engine.serve(), engine, model_name="tiny", encoder=cast("Any", BrokenEncoder()))
    async with httpx.AsyncClient(transport=transport_of(app), base_url="http://engine") as client:
        listed = (await client.get("/v1/models")).json()["data"]
        assert [(entry["id"], entry["max_model_len"]) for entry in listed][1] == ("broken", 9)
        assert [(await client.get(f"/v1/models/{entry['id']}")).json() for entry in listed] == listed


async def test_a_fault_of_ours_is_told_in_the_shape_of_the_others(engine: Engine) -> None:
    app = build_app(engine.serve(), engine, model_name="tiny", encoder=cast("Any", BrokenEncoder()))
    async with httpx.AsyncClient(transport=transport_of(app), base_url="http://engine") as client:
        answer = await client.post("/v1/embeddings", json={"input": "x"})
        assert answer.status_code == 500
        assert answer.json()["error"]["code"] == "engine_error"
        ids = await client.post("/v1/embeddings", json={"input": [[1, 2]]})
        assert ids.status_code == 400
        assert "not token ids" in ids.json()["error"]["message"]


async def test_an_answer_that_left_its_constraint_is_an_error_and_others_go_on(client: httpx.AsyncClient) -> None:
    """More properties than the grammar's library can follow at once: it finds out on the way."""
    properties = {f"p{number}": {"type": "boolean"} for number in range(1000)}
    schema = {"type": "object", "properties": properties, "additionalProperties": False}
    body = HI | {"structured_outputs": {"json": schema}, "bad_words": ["}"]}
    beside = asyncio.create_task(complete(client, max_tokens=60))
    failed = await client.post("/v1/chat/completions", json=body)
    assert failed.status_code == 500
    assert "can no longer be kept to its constraint" in failed.json()["error"]["message"]
    streamed = (await client.post("/v1/chat/completions", json=body | {"stream": True})).text
    assert "can no longer be kept" in streamed
    assert "[DONE]" not in streamed
    assert (await beside)["usage"]["completion_tokens"] == 60


class WatchedTokenizer(Tokenizer):
    """Remembers which threads wrote tokens as text."""

    def __init__(self) -> None:
        super().__init__(byte_level(), chat_template=None, bos_token_id=None, eos_token_ids=[])
        self.threads: set[int] = set()

    def bytes_of(self, token_id: int, *, skips_special: bool = True) -> bytes:
        self.threads.add(threading.get_ident())
        return super().bytes_of(token_id, skips_special=skips_special)


async def test_ids_are_written_as_text_for_whoever_echoes_them(engine: Engine) -> None:
    """Twelve million of them took a minute, and were then too many."""
    watched = WatchedTokenizer()
    app = build_app(engine.serve(), replace(engine, tokenizer=watched), model_name="tiny")
    async with httpx.AsyncClient(transport=transport_of(app), base_url="http://engine", timeout=300) as client:
        refused = await client.post("/v1/completions", json=TEXT | {"prompt": [5] * 1000})
        assert refused.json()["error"]["code"] == "context_length_exceeded"
    assert not watched.threads


@pytest.mark.parametrize("asked", [{"prompt_logprobs": 5}, {"logprobs": 5, "echo": True}])
async def test_log_probabilities_are_written_while_others_are_answered(engine: Engine, asked: dict[str, Any]) -> None:
    """Those of a long prompt take a second to write."""
    watched = WatchedTokenizer()
    running = engine.serve()
    running.start()
    app = build_app(running, replace(engine, tokenizer=watched), model_name="tiny")
    async with httpx.AsyncClient(transport=transport_of(app), base_url="http://engine", timeout=300) as client:
        body = TEXT | {"max_tokens": 0} | asked
        assert (await client.post("/v1/completions", json=body)).status_code == 200
        if "echo" in asked:
            assert (await client.post("/v1/completions", json=body | {"stream": True})).text.endswith("[DONE]\n\n")
    await running.stop()
    assert watched.threads
    assert threading.get_ident() not in watched.threads


class HeldConstraints(ConstraintCompiler):
    """Stands still before it compiles until it may go on."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__(tokenizer, VOCABULARY)
        self.has_begun, self.may_go_on = threading.Event(), threading.Event()

    def check(self, constraint: Constraint) -> None:
        self.has_begun.set()
        assert self.may_go_on.wait(60), "whoever would let it go on waits for it"
        super().check(constraint)


async def test_a_constraint_is_compiled_while_others_are_answered(engine: Engine) -> None:
    held = HeldConstraints(engine.tokenizer)
    running = engine.serve()
    running.start()
    app = build_app(running, replace(engine, constraints=held), model_name="tiny")
    async with httpx.AsyncClient(transport=transport_of(app), base_url="http://engine", timeout=300) as client:
        asked = asyncio.create_task(client.post("/v1/completions", json=TEXT | {"guided_regex": "("}))
        assert await asyncio.to_thread(held.has_begun.wait, 60)
        assert (await chat(client))["choices"][0]["message"]["content"]
        held.may_go_on.set()
        assert (await asked).json()["error"]["param"] == "response_format"
    await running.stop()


class HeldTokenizer(Tokenizer):
    """Stands still inside a text until it may go on."""

    def __init__(self) -> None:
        super().__init__(byte_level(), chat_template=None, bos_token_id=None, eos_token_ids=[])
        self.has_begun, self.may_go_on = threading.Event(), threading.Event()

    def encode(self, text: str, *, with_bos: bool = True) -> list[int]:
        self.has_begun.set()
        assert self.may_go_on.wait(60), "whoever would let it go on waits for it"
        return super().encode(text, with_bos=with_bos)


async def test_a_long_prompt_is_cut_into_tokens_while_others_are_answered(engine: Engine) -> None:
    held = HeldTokenizer()
    running = engine.serve()
    running.start()
    app = build_app(running, replace(engine, tokenizer=held), model_name="tiny")
    async with httpx.AsyncClient(transport=transport_of(app), base_url="http://engine", timeout=300) as client:
        long = asyncio.create_task(client.post("/v1/completions", json=TEXT | {"prompt": "a" * 100_000}))
        assert await asyncio.to_thread(held.has_begun.wait, 60)
        assert (await client.get("/health")).status_code == 200
        assert (await chat(client))["choices"][0]["message"]["content"]
        held.may_go_on.set()
        assert (await long).json()["error"]["code"] == "context_length_exceeded"
    await running.stop()
