"""LlamaIndex's OpenAILike."""

from typing import Any

import openai
import pytest
from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike
from running_gateway import TEXT, City, Gateway

ASKED = [ChatMessage(role="user", content="What is the capital of France?")]


def weather(city: str) -> str:
    """The weather of a city."""
    return f"sunny in {city}"


def make_llm(gateway: Gateway, **changes: Any) -> OpenAILike:
    values: dict[str, Any] = {
        "api_base": gateway.base_url,
        "api_key": gateway.key,
        "model": gateway.model,
        "is_chat_model": True,
        "is_function_calling_model": True,
        "max_retries": 0,
    }
    return OpenAILike(**{**values, **changes})


def test_chat(gateway: Gateway) -> None:
    assert make_llm(gateway).chat(ASKED).message.content == TEXT


async def test_stream(gateway: Gateway) -> None:
    pieces = [piece.delta or "" async for piece in await make_llm(gateway).astream_chat(ASKED)]
    assert "".join(pieces) == TEXT


def test_tools(gateway: Gateway) -> None:
    tool = FunctionTool.from_defaults(weather)
    answer = make_llm(gateway).predict_and_call([tool], user_msg="What is the weather in Paris?")
    assert str(answer) == "sunny in Paris"


def test_structured_output(gateway: Gateway) -> None:
    answer = make_llm(gateway).as_structured_llm(City).chat(ASKED)
    assert answer.raw == City(name="Paris", population=7)


def test_errors(gateway: Gateway) -> None:
    with pytest.raises(openai.AuthenticationError):
        make_llm(gateway, api_key="bk-wrong").chat(ASKED)
    with pytest.raises(openai.NotFoundError):
        make_llm(gateway, model="no-such-model").chat(ASKED)
    with pytest.raises(openai.RateLimitError, match="budget"):
        make_llm(gateway, api_key=gateway.poor_key).chat(ASKED)
