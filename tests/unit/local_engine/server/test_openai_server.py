"""What is rejected, and how: by name, in one format, without harm to the engine."""

import asyncio
import json
import sys
from collections.abc import AsyncGenerator
from typing import Any, cast

import httpx
import pytest

from local_engine.assembly import Engine
from local_engine.async_engine import Admission
from local_engine.engine_core import Delta
from local_engine.errors import EngineDraining, EngineError, InvalidRequest, StepFailed
from local_engine.request import Request
from local_engine.sampling.sampling_params import SamplingParams
from local_engine.server.answer_stream import events
from local_engine.server.chat import Model, prepare_completion
from local_engine.server.openai_answers import AnswerWire
from local_engine.server.openai_server import build_app
from tests.unit.local_engine.asking import HI, TEXT, VOCABULARY, WEATHER, allowed, client_of, complete

REFUSED: list[tuple[str, dict[str, Any], str | None]] = [
    ("completions", {"prompt": []}, "prompt"),
    ("completions", {"prompt": ""}, "prompt"),
    ("completions", {"prompt": [[5], []]}, "prompt"),
    ("completions", {"prompt": ["a", 3]}, "prompt"),
    ("completions", {"prompt": [999]}, "prompt"),
    ("completions", {"prompt": [-1]}, "prompt"),
    ("completions", {"prompt": [[1], [VOCABULARY]]}, "prompt"),
    ("completions", {"prompt": "a" * 200}, "prompt"),
    ("completions", {"prompt": ["a"] * 9}, "prompt"),
    ("completions", {"n": 9}, "n"),
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
    ("completions", {"logit_bias": {"9" * 5000: 1}}, "logit_bias"),
    ("chat/completions", {"max_tokens": 0}, "max_tokens"),
    ("chat/completions", {"max_completion_tokens": 0}, "max_tokens"),
    ("chat/completions", {"prompt_logprobs": 0, "stream": True}, "prompt_logprobs"),
    ("chat/completions", {"top_logprobs": 2}, "top_logprobs"),
    ("chat/completions", {"functions": [{"name": "f"}]}, "functions"),
    ("chat/completions", {"tools": [{}]}, "tools"),
    ("chat/completions", {"tools": [{"function": "abc"}], "tool_choice": "required"}, "tools"),
    ("chat/completions", {"tools": [WEATHER], "tool_choice": {"function": "x"}}, "tool_choice"),
    ("chat/completions", {"tools": [WEATHER], "tool_choice": {"type": "allowed_tools"}}, "tool_choice"),
    ("chat/completions", {"tools": [WEATHER], "tool_choice": allowed("auto", "other")}, "tool_choice"),
    ("chat/completions", {"tools": [WEATHER], "tool_choice": allowed("any", "weather")}, "tool_choice"),
    ("chat/completions", {"tool_choice": "required"}, "tool_choice"),
    ("chat/completions", {"chat_template_kwargs": {"messages": 3}}, "messages"),
    ("chat/completions", {"response_format": {"type": "sound"}}, "response_format"),
    ("chat/completions", {"response_format": {"type": "json_object", "schema": 123}}, "response_format"),
    ("chat/completions", {"response_format": {"type": "json_schema", "json_schema": "abc"}}, "response_format"),
    ("chat/completions", {"response_format": {"type": "json"}}, "response_format"),
    ("chat/completions", {"response_format": {"type": "json_object", "schema": {"type": "x"}}}, "response_format"),
    ("chat/completions", {"response_format": {"type": "json_object"}, "guided_regex": "a"}, "response_format"),
    ("chat/completions", {"guided_regex": "a", "guided_choice": ["b"]}, "structured_outputs"),
    ("chat/completions", {"structured_outputs": {"choice": []}}, "structured_outputs"),
    ("chat/completions", {"grammar": "root ::= (("}, "structured_outputs"),
    ("chat/completions", {"structured_outputs": {"regex": "("}}, "structured_outputs"),
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


async def test_a_body_that_json_follows_and_marks_do_not_is_refused(client: httpx.AsyncClient) -> None:
    """Since Python 3.12 the decoder has a recursion limit of its own, and a comprehension is not a call."""
    deep = json.loads('{"properties": ' * 600 + "1" + "}" * 600)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(limit if sys.version_info < (3, 12) else 500)
    try:
        refused = await client.post(
            "/v1/chat/completions", json=HI | {"tools": [{"function": {"name": "f", "parameters": deep}}]}
        )
    finally:
        sys.setrecursionlimit(limit)
    assert refused.status_code == 400
    assert "nested too deeply" in refused.json()["error"]["message"]


async def test_a_body_that_no_window_holds_is_refused_unread(client: httpx.AsyncClient) -> None:
    refused = await client.post("/v1/completions", content=b'{"prompt": [' + b"1," * 9_000_000 + b"1]}")
    assert refused.status_code == 400
    assert "larger than" in refused.json()["error"]["message"]


async def test_another_servers_path_is_told_what_there_is(client: httpx.AsyncClient) -> None:
    for path in ("/generate", "/score", "/version"):
        answer = await client.get(path)
        assert answer.status_code == 404
        message = answer.json()["error"]["message"]
        assert message.startswith(f"{path} is not served")
        assert "/v1/completions" in message


async def test_an_answer_that_left_its_constraint_is_an_error_and_others_go_on(client: httpx.AsyncClient) -> None:
    """More properties than the grammar library can follow at once, which it notices only in the middle."""
    properties = {f"p{number}": {"type": "boolean"} for number in range(1000)}
    schema = {"type": "object", "properties": properties, "additionalProperties": False}
    body = HI | {"structured_outputs": {"json": schema}, "bad_words": ["}"]}
    beside = asyncio.create_task(complete(client, max_tokens=60))
    failed = await client.post("/v1/chat/completions", json=body)
    assert failed.status_code == 400, "the engine is well, and nobody is to keep away from it"
    error = failed.json()["error"]
    assert "can no longer be kept to its constraint" in error["message"]
    assert (error["type"], error["param"]) == ("invalid_request_error", "structured_outputs")
    streamed = await client.post("/v1/chat/completions", json=body | {"stream": True})
    assert (streamed.status_code, streamed.json()["error"]) == (400, error)
    assert (await beside)["usage"]["completion_tokens"] == 60


class Fails:
    """An engine in which a step fails, or the process ends, before or after an answer's first token."""

    def __init__(self, fault: EngineError, *, is_late: bool) -> None:
        self._parameter = fault.parameter if isinstance(fault, InvalidRequest) else None
        self._ends, self._is_late = isinstance(fault, EngineDraining), is_late

    async def generate(self, prompt: list[int], params: SamplingParams, **_: Any) -> AsyncGenerator[Delta]:
        request = Request("r", prompt, params)
        if self._is_late:
            yield Delta(request, "a", [97])
        yield Delta(request, finish_reason="error", error="No.", parameter=self._parameter, is_abandoned=self._ends)


@pytest.mark.parametrize(
    ("fault", "wire_kind"),
    [
        (StepFailed(), "server_error"),
        (EngineDraining(), "server_error"),
        (InvalidRequest("", parameter="tools"), "invalid_request_error"),
    ],
    ids=["step", "end", "request"],
)
async def test_a_stream_that_never_began_has_the_status_of_its_failure(
    engine: Engine, fault: EngineError, wire_kind: str
) -> None:
    model = Model(engine.tokenizer, engine.constraints, 128, VOCABULARY)
    prepared = prepare_completion(b'{"prompt": "hi", "stream": true}', model)
    wire = AnswerWire(prepared.kind, "tiny", engine.tokenizer)
    with pytest.raises(type(fault)):
        await anext(events(cast(Admission, Fails(fault, is_late=False)), prepared, wire))
    begun = [event async for event in events(cast(Admission, Fails(fault, is_late=True)), prepared, wire)]
    told = json.loads(begun[-1].removeprefix(b"data: "))["error"]
    assert (told["type"], told["param"]) == (wire_kind, getattr(fault, "parameter", None))


class BrokenEncoder:
    """An embedding model with a bug of ours."""

    name = "broken"
    dimensions = 3
    context_window = 9

    def encode(self, texts: list[str]) -> None:
        raise ZeroDivisionError(texts)


async def test_the_embedding_model_is_listed_and_found_by_name(engine: Engine) -> None:
    app = build_app(engine.serve(), engine, model_name="tiny", encoder=cast("Any", BrokenEncoder()))
    async with client_of(app) as client:
        listed = (await client.get("/v1/models")).json()["data"]
        assert [(entry["id"], entry["max_model_len"]) for entry in listed][1] == ("broken", 9)
        assert [entry["root"] for entry in listed] == ["tiny", "broken"]
        assert [(await client.get(f"/v1/models/{entry['id']}")).json() for entry in listed] == listed


async def test_a_fault_of_ours_is_told_in_the_shape_of_the_others(engine: Engine) -> None:
    app = build_app(engine.serve(), engine, model_name="tiny", encoder=cast("Any", BrokenEncoder()))
    async with client_of(app) as client:
        answer = await client.post("/v1/embeddings", json={"input": "x"})
        assert answer.status_code == 500
        assert answer.json()["error"]["code"] == "engine_error"
        ids = await client.post("/v1/embeddings", json={"input": [[1, 2]]})
        assert ids.status_code == 400
        assert "token ids would be" in ids.json()["error"]["message"]


async def test_who_is_displaced_before_its_answer_began_is_told_so_by_status(engine: Engine) -> None:
    running = engine.serve()  # not started yet, so all requests wait
    async with client_of(build_app(running, engine, model_name="tiny")) as client:
        unimportant = [
            asyncio.create_task(client.post("/v1/completions", json=TEXT | {"priority": 1, "stream": number % 2 == 0}))
            for number in range(8)
        ]
        while running.state().free_slots or running.state().waiting < 8:
            await asyncio.sleep(0)
        important = asyncio.create_task(client.post("/v1/chat/completions", json=HI | {"n": 2}))
        displaced = await asyncio.gather(*unimportant[6:])
        running.start()
        assert (await important).status_code == 200
        assert {answer.status_code for answer in await asyncio.gather(*unimportant[:6])} == {200}
    await running.stop()
    for answer in displaced:
        assert answer.status_code == 429
        assert int(answer.headers["retry-after"]) >= 1
        assert "more important" in answer.json()["error"]["message"]
    assert running.state().kv_blocks_free == running.state().kv_blocks_total
