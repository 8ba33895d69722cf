"""Pydantic AI, over chat completions and responses."""

import pytest
from pydantic_ai import Agent, ModelHTTPError, NativeOutput
from pydantic_ai.models import Model
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider
from running_gateway import QUESTION, TEXT, City, Gateway


def make_model(gateway: Gateway, kind: str = "chat", *, name: str | None = None, key: str | None = None) -> Model:
    key, name = key or gateway.key, name or gateway.model
    provider = OpenAIProvider(base_url=gateway.base_url, api_key=key)
    return (
        OpenAIResponsesModel(name, provider=provider)
        if kind == "responses"
        else OpenAIChatModel(name, provider=provider)
    )


@pytest.mark.parametrize("kind", ["chat", "responses"])
async def test_chat(gateway: Gateway, kind: str) -> None:
    result = await Agent(make_model(gateway, kind)).run(QUESTION)
    assert result.output == TEXT
    assert result.usage.output_tokens == 8


@pytest.mark.parametrize("kind", ["chat", "responses"])
async def test_stream(gateway: Gateway, kind: str) -> None:
    async with Agent(make_model(gateway, kind)).run_stream(QUESTION) as result:
        pieces = [piece async for piece in result.stream_text(delta=True)]
    assert "".join(pieces) == TEXT


@pytest.mark.parametrize("kind", ["chat", "responses"])
async def test_tools(gateway: Gateway, kind: str) -> None:
    agent = Agent(make_model(gateway, kind))

    @agent.tool_plain
    def weather(city: str) -> str:  # pyright: ignore[reportUnusedFunction]
        return f"sunny in {city}"

    assert (await agent.run("What is the weather in Paris?")).output == "The tool said: sunny in Paris"


@pytest.mark.parametrize("output_type", [City, NativeOutput(City)], ids=["by tool", "by schema"])
async def test_structured_output(gateway: Gateway, output_type: type[City]) -> None:
    result = await Agent(make_model(gateway), output_type=output_type).run(QUESTION)
    assert result.output == City(name="Paris", population=7)


@pytest.mark.parametrize(("key", "name", "status"), [("bk-wrong", None, 401), (None, "no-such-model", 404)])
async def test_errors(gateway: Gateway, key: str | None, name: str | None, status: int) -> None:
    with pytest.raises(ModelHTTPError) as caught:
        await Agent(make_model(gateway, name=name, key=key)).run(QUESTION)
    assert caught.value.status_code == status


async def test_a_spent_budget(gateway: Gateway) -> None:
    with pytest.raises(ModelHTTPError, match="insufficient_quota"):
        await Agent(make_model(gateway, key=gateway.poor_key)).run(QUESTION)
