"""The official OpenAI client."""

import json
import time
from collections.abc import Iterator
from typing import Any, cast

import openai
import pytest
from running_gateway import MESSAGES, TEXT, City, Gateway

WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
ASKED: Any = MESSAGES


@pytest.fixture(scope="module")
def client(gateway: Gateway) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=gateway.base_url, api_key=gateway.key) as made:
        yield made


def test_chat(client: openai.OpenAI, gateway: Gateway) -> None:
    answer = client.chat.completions.create(model=gateway.model, messages=ASKED)
    assert answer.choices[0].message.content == TEXT
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == 20


async def test_the_asynchronous_client_chats(gateway: Gateway) -> None:
    async with openai.AsyncOpenAI(base_url=gateway.base_url, api_key=gateway.key) as client:
        answer = await client.chat.completions.create(model="auto", messages=ASKED)
    assert answer.choices[0].message.content == TEXT


def test_a_base_address_without_its_version(gateway: Gateway) -> None:
    with openai.OpenAI(base_url=gateway.url, api_key=gateway.key) as client:
        assert client.chat.completions.create(model="auto", messages=ASKED).choices[0].message.content == TEXT
        assert gateway.model in [model.id for model in client.models.list()]


def test_stream_without_a_usage_that_was_not_asked_for(client: openai.OpenAI, gateway: Gateway) -> None:
    chunks = list(client.chat.completions.create(model=gateway.model, messages=ASKED, stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == TEXT
    assert not any(chunk.usage for chunk in chunks)


def test_stream_with_usage(client: openai.OpenAI, gateway: Gateway) -> None:
    options: Any = {"include_usage": True}
    stream = client.chat.completions.create(model="auto", messages=ASKED, stream=True, stream_options=options)
    last = list(stream)[-1]
    assert last.usage is not None
    assert last.usage.total_tokens == 28


def test_the_stream_helper_collects_a_tool_call(client: openai.OpenAI, gateway: Gateway) -> None:
    with client.chat.completions.stream(model=gateway.model, messages=ASKED, tools=[WEATHER]) as stream:
        for _ in stream:
            pass
        answer = stream.get_final_completion()
    call = (answer.choices[0].message.tool_calls or [])[0]
    assert (call.function.name, json.loads(call.function.arguments)) == ("weather", {"city": "Paris"})


def test_tools_and_their_results(client: openai.OpenAI, gateway: Gateway) -> None:
    first = client.chat.completions.create(model=gateway.model, messages=ASKED, tools=[WEATHER])
    message = first.choices[0].message
    assert first.choices[0].finish_reason == "tool_calls"
    call = (message.tool_calls or [])[0]
    told: Any = [*MESSAGES, message, {"role": "tool", "tool_call_id": call.id, "content": "sunny"}]
    second = client.chat.completions.create(model=gateway.model, messages=told, tools=[WEATHER])
    assert second.choices[0].message.content == "The tool said: sunny"


def test_structured_output(client: openai.OpenAI, gateway: Gateway) -> None:
    answer = client.chat.completions.parse(model=gateway.model, messages=ASKED, response_format=City)
    assert answer.choices[0].message.parsed == City(name="Paris", population=7)


def test_embeddings_in_the_packed_form_the_client_asks_for(client: openai.OpenAI, gateway: Gateway) -> None:
    answer = client.embeddings.create(model=gateway.model, input=["one", "two"])
    assert [row.embedding for row in answer.data] == [[0.25, -0.5, 1.0]] * 2


def test_completions(client: openai.OpenAI, gateway: Gateway) -> None:
    assert client.completions.create(model=gateway.model, prompt="The capital").choices[0].text == TEXT


def test_models(client: openai.OpenAI, gateway: Gateway) -> None:
    assert [model.id for model in client.models.list()] == [
        "auto",
        "draws",
        "judges",
        "listens",
        "ranks",
        "speaks",
        gateway.model,
    ]
    assert client.models.retrieve(gateway.model).owned_by == "openai"


def test_responses(client: openai.OpenAI, gateway: Gateway) -> None:
    answer = client.responses.create(model=gateway.model, input="What is the capital of France?", instructions="Brief.")
    assert answer.output_text == TEXT
    assert answer.status == "completed"
    assert answer.usage is not None
    assert (answer.usage.input_tokens, answer.usage.input_tokens_details.cached_tokens) == (20, 4)


def test_responses_stream(client: openai.OpenAI, gateway: Gateway) -> None:
    with client.responses.stream(model=gateway.model, input="What is the capital of France?") as stream:
        said = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        answer = stream.get_final_response()
    assert said == answer.output_text == TEXT


def test_a_background_stream_that_was_left_is_fetched(client: openai.OpenAI, gateway: Gateway) -> None:
    with client.responses.stream(model=gateway.model, input="Capital of France?", background=True) as stream:
        first = next(iter(stream))
    assert first.type == "response.created"
    with client.responses.stream(response_id=first.response.id, starting_after=first.sequence_number) as stream:
        said = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        answer = stream.get_final_response()
    assert said == answer.output_text == TEXT
    rest = list(client.responses.retrieve(first.response.id, stream=True, starting_after=first.sequence_number))
    assert [event.sequence_number for event in rest] == list(range(1, len(rest) + 1))


def test_responses_over_a_websocket(client: openai.OpenAI, gateway: Gateway) -> None:
    previous, said = None, ""
    with client.responses.connect() as connection:
        for _ in range(2):
            connection.response.create(
                model=gateway.model, input="Capital of France?", store=False, previous_response_id=previous
            )
            for event in connection:
                if event.type == "response.completed":
                    previous, said = event.response.id, said + event.response.output_text
                    break
        connection.response.create(model=gateway.model, input="?", store=False, previous_response_id="resp_unknown")
        refused: Any = connection.recv()
    assert said == TEXT * 2
    assert (refused.type, refused.error["code"]) == ("error", "previous_response_not_found")


def test_responses_with_tools_and_their_results(client: openai.OpenAI, gateway: Gateway) -> None:
    tool: Any = {"type": "function", "name": "weather", "strict": True, **WEATHER["function"]}
    first = client.responses.create(model=gateway.model, input="Weather?", tools=[tool])
    call = next(item for item in first.output if item.type == "function_call")
    assert (call.name, json.loads(call.arguments)) == ("weather", {"city": "Paris"})
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
    told: Any = [{"role": "user", "content": "Weather?"}, call, result]
    second = client.responses.create(model=gateway.model, input=told, tools=[tool])
    assert second.output_text == "The tool said: sunny"


def test_a_response_goes_on_from_the_one_before(client: openai.OpenAI, gateway: Gateway) -> None:
    tool: Any = {"type": "function", "name": "weather", "strict": True, **WEATHER["function"]}
    first = client.responses.create(model=gateway.model, input="Weather?", tools=[tool])
    call = next(item for item in first.output if item.type == "function_call")
    result: Any = [{"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}]
    second = client.responses.create(model=gateway.model, input=result, tools=[tool], previous_response_id=first.id)
    assert second.output_text == "The tool said: sunny"
    assert client.responses.retrieve(second.id).output_text == second.output_text


def test_tokens_of_a_response_are_counted(client: openai.OpenAI, gateway: Gateway) -> None:
    tool: Any = {"type": "function", "name": "weather", "strict": True, **WEATHER["function"]}
    bare = client.responses.input_tokens.count(model=gateway.model, input="A city.")
    assert (bare.object, bare.input_tokens > 0) == ("response.input_tokens", True)
    armed = client.responses.input_tokens.count(model=gateway.model, input="A city.", tools=[tool])
    assert armed.input_tokens > bare.input_tokens
    first = client.responses.create(model=gateway.model, input="A city.")
    more = client.responses.input_tokens.count(model=gateway.model, input="More.", previous_response_id=first.id)
    assert more.input_tokens > bare.input_tokens


def test_a_conversation_is_compacted_and_continued(client: openai.OpenAI, gateway: Gateway) -> None:
    said: Any = [{"role": "user", "content": "A city."}, {"role": "assistant", "content": "Paris."}]
    compacted = client.responses.compact(model=gateway.model, input=said)
    assert [item.type for item in compacted.output] == ["message", "compaction"]
    assert compacted.usage.total_tokens > 0
    items: Any = [*(item.to_dict(warnings=False) for item in compacted.output), {"role": "user", "content": "More."}]
    assert client.responses.create(model=gateway.model, input=items).output_text


def test_a_conversation(client: openai.OpenAI, gateway: Gateway) -> None:
    tool: Any = {"type": "function", "name": "weather", "strict": True, **WEATHER["function"]}
    made = client.conversations.create(metadata={"topic": "weather"})
    first = client.responses.create(model=gateway.model, input="Weather?", tools=[tool], conversation=made.id)
    assert first.conversation is not None
    assert first.conversation.id == made.id
    call = next(item for item in first.output if item.type == "function_call")
    result: Any = [{"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}]
    with client.responses.stream(model=gateway.model, input=result, tools=[tool], conversation=made.id) as stream:
        assert stream.get_final_response().output_text == "The tool said: sunny"
    items = list(
        client.conversations.items.list(made.id, order="asc", limit=2, include=["message.output_text.logprobs"])
    )
    assert [item.type for item in items] == ["message", "function_call", "function_call_output", "message"]
    for item in items:
        found = client.conversations.items.retrieve(str(item.id), conversation_id=made.id)
        assert found.to_dict() == item.to_dict()
    assert client.conversations.retrieve(made.id).metadata == {"topic": "weather"}
    assert client.conversations.update(made.id, metadata={"topic": "sun"}).metadata == {"topic": "sun"}
    added = client.conversations.items.create(made.id, items=[{"role": "user", "content": "Thanks."}])
    assert client.conversations.items.delete(str(added.last_id), conversation_id=made.id).id == made.id
    assert client.conversations.delete(made.id).deleted
    with pytest.raises(openai.NotFoundError):
        client.conversations.retrieve(made.id)


def test_responses_structured_output(client: openai.OpenAI, gateway: Gateway) -> None:
    answer = client.responses.parse(model=gateway.model, input="A city.", text_format=City)
    assert answer.output_parsed == City(name="Paris", population=7)


def test_a_wrong_key(gateway: Gateway) -> None:
    client = openai.OpenAI(base_url=gateway.base_url, api_key="bk-wrong")
    with client, pytest.raises(openai.AuthenticationError, match="not known here"):
        client.chat.completions.create(model=gateway.model, messages=ASKED)


def test_an_unknown_model(client: openai.OpenAI, gateway: Gateway) -> None:
    with pytest.raises(openai.NotFoundError, match=gateway.model) as caught:
        client.chat.completions.create(model="no-such-model", messages=ASKED)
    assert caught.value.code == "model_not_found"


def test_a_spent_budget_is_told_once_and_not_retried(gateway: Gateway) -> None:
    client = openai.OpenAI(base_url=gateway.base_url, api_key=gateway.poor_key, max_retries=5)
    with client, pytest.raises(openai.RateLimitError) as caught:
        client.chat.completions.create(model=gateway.model, messages=ASKED)
    assert caught.value.code == "insufficient_quota"
    assert caught.value.response.headers["x-should-retry"] == "false"
    sent = cast(Any, caught.value).request.headers["x-stainless-retry-count"]
    assert sent == "0", "the client believed the header"


def test_what_the_provider_refuses(client: openai.OpenAI, gateway: Gateway) -> None:
    asked: Any = [{"role": "user", "content": "[status 400]"}]
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(model=gateway.model, messages=asked)


def test_a_body_that_is_wrong(client: openai.OpenAI, gateway: Gateway) -> None:
    with pytest.raises(openai.BadRequestError, match="messages"):
        client.chat.completions.create(model=gateway.model, messages=[])


def test_a_batch(client: openai.OpenAI, gateway: Gateway) -> None:
    line = {
        "custom_id": "mine",
        "method": "POST",
        "url": "/v1/chat/completions",
        "body": {"model": gateway.model, "messages": MESSAGES},
    }
    file = client.files.create(file=("in.jsonl", json.dumps(line).encode()), purpose="batch")
    assert client.files.wait_for_processing(file.id).status == "processed"
    batch = client.batches.create(
        input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h", metadata={"job": "nightly"}
    )
    while (done := client.batches.retrieve(batch.id)).status not in ("completed", "failed", "expired"):
        time.sleep(0.1)
    assert done.output_file_id is not None
    answer = json.loads(client.files.content(done.output_file_id).text)
    assert answer["custom_id"] == "mine"
    assert answer["response"]["body"]["choices"][0]["message"]["content"] == TEXT
    assert done.id in [one.id for one in client.batches.list(limit=1)]
    for name in (done.input_file_id, done.output_file_id):
        assert client.files.delete(name).deleted
