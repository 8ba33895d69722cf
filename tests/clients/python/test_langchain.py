"""LangChain's ChatOpenAI."""

import openai
import pytest
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from pydantic import SecretStr
from running_gateway import QUESTION, TEXT, City, Gateway


@tool
def weather(city: str) -> str:
    """The weather of a city."""
    return f"sunny in {city}"


def make_chat(gateway: Gateway, **changes: object) -> ChatOpenAI:
    values = {"base_url": gateway.base_url, "api_key": SecretStr(gateway.key), "model": gateway.model}
    return ChatOpenAI.model_validate({**values, **changes})


def test_chat(gateway: Gateway) -> None:
    answer = make_chat(gateway).invoke(QUESTION)
    assert answer.text == TEXT
    assert answer.usage_metadata is not None
    assert answer.usage_metadata["total_tokens"] == 28


async def test_stream(gateway: Gateway) -> None:
    pieces = [piece async for piece in make_chat(gateway, stream_usage=True).astream(QUESTION)]
    assert "".join(piece.text for piece in pieces) == TEXT
    assert any(piece.usage_metadata for piece in pieces)


def test_tools_and_their_results(gateway: Gateway) -> None:
    chat = make_chat(gateway).bind_tools([weather])
    first = chat.invoke(QUESTION)
    call = first.tool_calls[0]
    assert (call["name"], call["args"]) == ("weather", {"city": "Paris"})
    result: ToolMessage = weather.invoke(call)
    assert chat.invoke([HumanMessage(QUESTION), first, result]).text == "The tool said: sunny in Paris"


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_structured_output(gateway: Gateway, method: str) -> None:
    chat = make_chat(gateway).with_structured_output(City, method=method)  # pyright: ignore[reportArgumentType]
    assert chat.invoke(QUESTION) == City(name="Paris", population=7)


def test_the_responses_api(gateway: Gateway) -> None:
    assert make_chat(gateway, use_responses_api=True).invoke(QUESTION).text == TEXT


def test_embeddings_of_token_lists(gateway: Gateway) -> None:
    key = SecretStr(gateway.key)
    made = OpenAIEmbeddings(
        base_url=gateway.base_url, api_key=key, model=gateway.model, check_embedding_ctx_length=False
    )
    assert made.embed_query("one") == [0.25, -0.5, 1.0]


def test_errors(gateway: Gateway) -> None:
    with pytest.raises(openai.AuthenticationError):
        make_chat(gateway, api_key=SecretStr("bk-wrong")).invoke(QUESTION)
    with pytest.raises(openai.NotFoundError):
        make_chat(gateway, model="no-such-model").invoke(QUESTION)


def test_a_spent_budget_is_not_retried(gateway: Gateway) -> None:
    with pytest.raises(openai.RateLimitError) as caught:
        make_chat(gateway, api_key=SecretStr(gateway.poor_key), max_retries=5).invoke(QUESTION)
    assert caught.value.request.headers["x-stainless-retry-count"] == "0"
