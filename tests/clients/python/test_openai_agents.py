"""OpenAI's Agents SDK: its loop over chats, and over the Responses API in front of a provider of chats."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest
from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIConversationsSession,
    OpenAIResponsesModel,
    OpenAIResponsesWSModel,
    RunConfig,
    Runner,
    function_tool,
)
from agents.models.interface import Model
from openai import AsyncOpenAI
from running_gateway import QUESTION, TEXT, City, Gateway

QUIETLY = RunConfig(tracing_disabled=True)


@function_tool
def weather(city: str) -> str:
    """The weather of a city."""
    return f"sunny in {city}"


@pytest.fixture(params=[OpenAIResponsesModel, OpenAIResponsesWSModel, OpenAIChatCompletionsModel])
async def model(gateway: Gateway, request: pytest.FixtureRequest) -> AsyncGenerator[Model]:
    client = AsyncOpenAI(base_url=gateway.base_url, api_key=gateway.key)
    made = request.param(gateway.model, client)
    assert isinstance(made, Model)
    yield made
    await made.close()


async def test_an_answer_and_its_usage(model: Model) -> None:
    result = await Runner.run(Agent(name="guide", instructions="Brief.", model=model), QUESTION, run_config=QUIETLY)
    assert result.final_output == TEXT
    assert result.context_wrapper.usage.total_tokens == 28


async def test_tools_are_called_until_there_is_an_answer(model: Model) -> None:
    agent = Agent(name="guide", model=model, tools=[weather])
    result = await Runner.run(agent, QUESTION, run_config=QUIETLY)
    assert result.final_output == "The tool said: sunny in Paris"


async def test_the_same_streamed(model: Model) -> None:
    agent = Agent(name="guide", model=model, tools=[weather], model_settings=ModelSettings(include_usage=True))
    result = Runner.run_streamed(agent, QUESTION, run_config=QUIETLY)
    kinds = [event.name async for event in result.stream_events() if event.type == "run_item_stream_event"]
    assert kinds == ["tool_called", "tool_output", "message_output_created"]
    assert result.final_output == "The tool said: sunny in Paris"


async def test_structured_output(model: Model) -> None:
    agent = Agent(name="guide", model=model, output_type=City)
    result = await Runner.run(agent, QUESTION, run_config=QUIETLY)
    assert result.final_output == City(name="Paris", population=7)


async def test_a_hand_over_to_another_agent(model: Model) -> None:
    expert = Agent(name="expert", model=model)
    result = await Runner.run(Agent(name="guide", model=model, handoffs=[expert]), QUESTION, run_config=QUIETLY)
    assert result.last_agent.name == "expert"


async def test_a_session_that_the_gateway_keeps(gateway: Gateway) -> None:
    """With the Responses API alone: the SDK cannot make chats of such a session's items."""
    async with AsyncOpenAI(base_url=gateway.base_url, api_key=gateway.key) as client:
        model = OpenAIResponsesModel(gateway.model, client)
        agent = Agent(name="guide", model=model, tools=[weather])
        session: Any = OpenAIConversationsSession(openai_client=client)  # the SDK's types disagree with each other
        first = await Runner.run(agent, QUESTION, session=session, run_config=QUIETLY)
        assert first.final_output == "The tool said: sunny in Paris"
        kinds = ["message", "function_call", "function_call_output", "message"]
        assert [item.get("type") for item in await session.get_items()] == kinds
        streamed = Runner.run_streamed(Agent(name="guide", model=model), "Thanks.", session=session, run_config=QUIETLY)
        assert [event async for event in streamed.stream_events()]
        assert streamed.final_output == TEXT
        again = OpenAIConversationsSession(conversation_id=session.session_id, openai_client=client)
        assert [item.get("type") for item in await again.get_items()] == [*kinds, "message", "message"]
        assert [item.get("role") for item in await again.get_items(limit=2)] == ["user", "assistant"]
        newest = await again.pop_item()
        assert newest is not None
        assert newest.get("role") == "assistant"
        assert len(await again.get_items()) == 5
        await again.clear_session()
        assert await again.get_items() == []


async def test_a_conversation_that_the_server_keeps(gateway: Gateway) -> None:
    async with AsyncOpenAI(base_url=gateway.base_url, api_key=gateway.key) as client:
        agent = Agent(name="guide", model=OpenAIResponsesModel(gateway.model, client), tools=[weather])
        made = await client.conversations.create()
        first = await Runner.run(agent, QUESTION, conversation_id=made.id, run_config=QUIETLY)
        assert first.final_output == "The tool said: sunny in Paris"
        streamed = Runner.run_streamed(agent, "And Rome?", conversation_id=made.id, run_config=QUIETLY)
        assert [event async for event in streamed.stream_events()]
        items = [item.type async for item in client.conversations.items.list(made.id, order="asc")]
        assert items[:4] == ["message", "function_call", "function_call_output", "message"]
        assert items[4] == "message"
        assert len(items) > 5
