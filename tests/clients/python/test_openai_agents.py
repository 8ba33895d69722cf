"""OpenAI's Agents SDK: its loop over chats, and over the Responses API in front of a provider of chats."""

import pytest
from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
    function_tool,
)
from agents.models.interface import Model
from openai import AsyncOpenAI
from pydantic import BaseModel
from running_gateway import TEXT, Gateway

QUESTION = "What is the capital of France?"
QUIETLY = RunConfig(tracing_disabled=True)


class City(BaseModel):
    name: str
    population: int


@function_tool
def weather(city: str) -> str:
    """The weather of a city."""
    return f"sunny in {city}"


@pytest.fixture(params=[OpenAIResponsesModel, OpenAIChatCompletionsModel])
def model(gateway: Gateway, request: pytest.FixtureRequest) -> Model:
    client = AsyncOpenAI(base_url=gateway.base_url, api_key=gateway.key)
    made = request.param(gateway.model, client)
    assert isinstance(made, Model)
    return made


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
