"""LangChain's ChatAnthropic, in front of a model that speaks OpenAI's format."""

import anthropic
import pytest
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import AIMessageChunk, HumanMessage, SystemMessage, ToolMessage
from langchain_core.messages.ai import add_ai_message_chunks
from langchain_core.tools import tool
from pydantic import SecretStr
from running_gateway import QUESTION, TEXT, City, Gateway


@tool
def weather(city: str) -> str:
    """The weather of a city."""
    return f"sunny in {city}"


def make_chat(gateway: Gateway, **changes: object) -> ChatAnthropic:
    values = {"base_url": gateway.url, "api_key": SecretStr(gateway.key), "model": gateway.model, "max_tokens": 100}
    return ChatAnthropic.model_validate({**values, **changes})


def test_chat_with_a_cached_system_prompt(gateway: Gateway) -> None:
    system = SystemMessage([{"type": "text", "text": "Brief.", "cache_control": {"type": "ephemeral"}}])
    answer = make_chat(gateway).invoke([system, HumanMessage(QUESTION)])
    assert answer.text == TEXT
    assert answer.usage_metadata is not None
    assert answer.usage_metadata["total_tokens"] == 28
    assert answer.response_metadata["stop_reason"] == "end_turn"


async def test_stream(gateway: Gateway) -> None:
    pieces = [piece async for piece in make_chat(gateway).astream(QUESTION)]
    assert "".join(piece.text for piece in pieces) == TEXT
    assert sum(piece.usage_metadata["output_tokens"] for piece in pieces if piece.usage_metadata) == 8


def test_tools_and_their_results(gateway: Gateway) -> None:
    chat = make_chat(gateway).bind_tools([weather])
    called = chat.invoke(QUESTION)
    (call,) = called.tool_calls
    assert (call["name"], call["args"]) == ("weather", {"city": "Paris"})
    result = ToolMessage(weather.invoke(call["args"]), tool_call_id=call["id"])
    assert chat.invoke([HumanMessage(QUESTION), called, result]).text == "The tool said: sunny in Paris"


def test_a_streamed_tool_call(gateway: Gateway) -> None:
    stream = make_chat(gateway).bind_tools([weather]).stream(QUESTION)
    whole = add_ai_message_chunks(*(piece for piece in stream if isinstance(piece, AIMessageChunk)))
    assert [(call["name"], call["args"]) for call in whole.tool_calls] == [("weather", {"city": "Paris"})]


@pytest.mark.parametrize("method", ["function_calling", "json_schema"])
def test_structured_output(gateway: Gateway, method: str) -> None:
    structured = make_chat(gateway).with_structured_output(City, method=method)  # pyright: ignore[reportArgumentType]
    assert structured.invoke(QUESTION) == City(name="Paris", population=7)


def test_a_refusal(gateway: Gateway) -> None:
    with pytest.raises(anthropic.AuthenticationError, match="not known here"):
        make_chat(gateway, api_key=SecretStr("bk-nobody"), max_retries=0).invoke(QUESTION)
