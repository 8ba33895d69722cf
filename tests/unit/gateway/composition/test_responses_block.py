"""The setting that says whether an OpenAI-compatible endpoint has the Responses API itself."""

import json

import pytest
from pydantic import ValidationError

from gateway.config.settings import BackendSettings
from tests.unit.gateway.composition.asked_block import ask_block

RESPONSE = {"object": "response", "status": "completed", "output": [], "model": "m", "usage": None}
CHAT = {"object": "chat.completion", "model": "m", "choices": [{"index": 0, "message": {"content": "hi"}}]}


@pytest.mark.parametrize(
    ("has_responses", "path", "answer"), [(True, "/v1/responses", RESPONSE), (False, "/v1/chat/completions", CHAT)]
)
async def test_such_an_endpoint_is_asked_in_its_own_words(
    has_responses: bool, path: str, answer: dict[str, object]
) -> None:
    body = {"model": "x", "input": "hi"}
    provider, chunk = await ask_block({"has_responses": has_responses}, "responses", body, answer=answer)
    assert [one.path for one in provider.received] == [path]
    assert json.loads(chunk.payload)["object"] == "response"


@pytest.mark.parametrize(
    ("has_responses", "path", "answer"), [(True, "/v1/responses", RESPONSE), (False, "/v1/chat/completions", CHAT)]
)
async def test_a_model_that_answers_no_chats_is_asked_there(
    has_responses: bool, path: str, answer: dict[str, object]
) -> None:
    block = {"has_responses": has_responses, "provider": "azure"}
    body = {"model": "x", "messages": [{"role": "user", "content": "hi"}]}
    provider, chunk = await ask_block(block, "chat.completions", body, answer=answer, model="gpt-5-codex")
    assert [one.path for one in provider.received] == [path]
    assert json.loads(chunk.payload)["object"] == "chat.completion"


@pytest.mark.parametrize(
    ("block", "path", "answer"),
    [
        ({"health_from": "vllm"}, "/tokenize", {"count": 33, "max_model_len": 2048}),
        ({}, "/v1/responses/input_tokens", {"object": "response.input_tokens", "input_tokens": 33}),
    ],
)
async def test_a_vllm_with_responses_counts_their_tokens_as_a_chat(
    block: dict[str, object], path: str, answer: dict[str, object]
) -> None:
    """vLLM 0.32.0 answers 405 to `/v1/responses/input_tokens`."""
    body = {"model": "x", "input": "hi"}
    asked = {"has_responses": True, **block}
    provider, chunk = await ask_block(asked, "responses.input_tokens", body, answer=answer)
    assert [one.path for one in provider.received] == [path]
    assert json.loads(chunk.payload) == {"object": "response.input_tokens", "input_tokens": 33}
    assert chunk.usage is not None
    assert not chunk.usage.is_estimated


async def test_what_a_vllm_keeps_is_not_counted_as_if_it_were_nothing() -> None:
    block = {"has_responses": True, "health_from": "vllm"}
    body = {"model": "x", "input": "hi", "previous_response_id": "resp_b682db54a48db88f"}
    provider, chunk = await ask_block(block, "responses.input_tokens", body)
    assert not provider.received
    assert chunk.usage is not None
    assert chunk.usage.is_estimated


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        ({"base_url": "https://api.openai.com/v1"}, True),
        ({"base_url": "https://eu.api.openai.com/v1", "provider": "openai"}, True),
        ({"base_url": "https://API.openai.com"}, True),
        ({"base_url": "https://api.openai.com/v1", "has_responses": False}, False),
        ({"base_url": "https://api.openai.com.example/v1", "provider": "openai"}, False),
        ({"base_url": "https://notapi.openai.com/v1"}, False),
        ({"base_url": "https://api.openai.com/v1", "wire_format": "anthropic"}, False),
        ({"base_url": "http://10.0.0.5/v1", "has_responses": True}, True),
        ({"litellm": {}}, False),
    ],
)
def test_openais_own_address_is_known(block: dict[str, object], expected: bool) -> None:
    assert BackendSettings.model_validate(block).answers_responses is expected


@pytest.mark.parametrize("block", [{"base_url": "http://x/v1", "wire_format": "anthropic"}, {"litellm": {"a": "b"}}])
def test_other_formats_have_none(block: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match="has_responses"):
        BackendSettings.model_validate({**block, "has_responses": True})
