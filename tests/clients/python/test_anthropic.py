"""The official Anthropic client, in front of a model that speaks OpenAI's format."""

import time
from collections.abc import Iterator
from typing import Any

import anthropic
import pytest
from running_gateway import TEXT, City, Gateway

ASKED: Any = [{"role": "user", "content": "What is the capital of France?"}]
WEATHER: Any = {
    "name": "weather",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


@pytest.fixture(scope="module")
def client(gateway: Gateway) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=gateway.url, api_key=gateway.key) as made:
        yield made


def test_chat(client: anthropic.Anthropic, gateway: Gateway) -> None:
    answer = client.messages.create(model=gateway.model, max_tokens=100, system="Brief.", messages=ASKED)
    block = answer.content[0]
    assert block.type == "text"
    assert block.text == TEXT
    assert answer.stop_reason == "end_turn"
    assert (answer.usage.input_tokens, answer.usage.cache_read_input_tokens) == (16, 4)


def test_stream(client: anthropic.Anthropic, gateway: Gateway) -> None:
    with client.messages.stream(model=gateway.model, max_tokens=100, messages=ASKED) as stream:
        assert "".join(stream.text_stream) == TEXT
        assert stream.get_final_message().usage.output_tokens == 8


def test_tools_and_their_results(client: anthropic.Anthropic, gateway: Gateway) -> None:
    first = client.messages.create(model=gateway.model, max_tokens=100, messages=ASKED, tools=[WEATHER])
    assert first.stop_reason == "tool_use"
    call = first.content[-1]
    assert call.type == "tool_use"
    assert (call.name, call.input) == ("weather", {"city": "Paris"})
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "sunny"}
    told: Any = [*ASKED, {"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
    second = client.messages.create(model=gateway.model, max_tokens=100, messages=told, tools=[WEATHER])
    block = second.content[0]
    assert block.type == "text"
    assert block.text == "The tool said: sunny"


def test_a_streamed_tool_call(client: anthropic.Anthropic, gateway: Gateway) -> None:
    with client.messages.stream(model=gateway.model, max_tokens=100, messages=ASKED, tools=[WEATHER]) as stream:
        message = stream.get_final_message()
    call = message.content[-1]
    assert call.type == "tool_use"
    assert call.input == {"city": "Paris"}


def test_its_tool_runner_which_would_have_the_conversation_kept_goes_on_without(
    client: anthropic.Anthropic, gateway: Gateway
) -> None:
    @anthropic.beta_tool
    def weather(city: str) -> str:
        """The weather in a city."""
        return f"{city} is sunny"

    asked: Any = {"model": gateway.model, "max_tokens": 100, "messages": ASKED}
    block = client.beta.messages.tool_runner(**asked, tools=[weather]).until_done().content[0]
    assert block.type == "text"
    assert block.text == "The tool said: Paris is sunny"


def test_structured_output(client: anthropic.Anthropic, gateway: Gateway) -> None:
    answer = client.messages.parse(model=gateway.model, max_tokens=100, messages=ASKED, output_format=City)
    assert answer.parsed_output == City(name="Paris", population=7)


def test_counting_tokens(client: anthropic.Anthropic, gateway: Gateway) -> None:
    assert client.messages.count_tokens(model=gateway.model, messages=ASKED).input_tokens > 0


def test_models(client: anthropic.Anthropic, gateway: Gateway) -> None:
    listed = [model.id for model in client.models.list()]
    assert gateway.model in listed
    assert [model.id for model in client.models.list(limit=1)] == listed


def test_a_wrong_key(gateway: Gateway) -> None:
    client = anthropic.Anthropic(base_url=gateway.url, api_key="bk-wrong")
    with client, pytest.raises(anthropic.AuthenticationError, match="not known here"):
        client.messages.create(model=gateway.model, max_tokens=10, messages=ASKED)


def test_an_unknown_model(client: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.NotFoundError, match="no-such-model"):
        client.messages.create(model="no-such-model", max_tokens=10, messages=ASKED)


def test_a_spent_budget_is_told_once_and_not_retried(gateway: Gateway) -> None:
    client = anthropic.Anthropic(base_url=gateway.url, api_key=gateway.poor_key, max_retries=5)
    with client, pytest.raises(anthropic.RateLimitError) as caught:
        client.messages.create(model=gateway.model, max_tokens=10, messages=ASKED)
    assert caught.value.response.headers["x-should-retry"] == "false"
    assert caught.value.request.headers["x-stainless-retry-count"] == "0"


def test_a_batch(client: anthropic.Anthropic, gateway: Gateway) -> None:
    asked: Any = {"model": gateway.model, "max_tokens": 100, "messages": ASKED}
    batch = client.messages.batches.create(requests=[{"custom_id": "mine", "params": asked}])
    while client.messages.batches.retrieve(batch.id).processing_status != "ended":
        time.sleep(0.1)
    [answer] = client.messages.batches.results(batch.id)
    assert answer.custom_id == "mine"
    assert answer.result.type == "succeeded"
    assert answer.result.message.content[0].type == "text"
    assert answer.result.message.content[0].text == TEXT
    assert client.messages.batches.delete(batch.id).id == batch.id
