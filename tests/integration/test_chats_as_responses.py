"""Apps that use chats or Anthropic's Messages with models available only over the Responses API: through the official
clients, a running gateway and a scripted provider, from the first turn to the books."""

import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

import openai
import pytest
from pydantic import BaseModel

from backends.dialects import dialect_of
from backends.openai_compatible import OPENAI_PATHS, OpenAICompatibleBackend
from backends.scripted import Outcome
from backends.translating import TranslatingBackend
from backends.usage import Usage
from gateway.ledger.entry import Entry, Status
from tests.builders import make_candidate, make_prices, make_snapshot
from tests.integration.service import Passage, Service
from tests.live_server import serving
from tests.rig import Rig
from tests.scripted_provider import Raw, ScriptedProvider
from tests.waiting import until

pytestmark = pytest.mark.integration
USED = Usage(input_tokens=120, cached_input_tokens=64, output_tokens=40, reasoning_tokens=30)
SUPPORTS = frozenset({"streaming", "tools", "json_schema"})
PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {"id": {"type": "string"}},
    "required": ["id"],
    "additionalProperties": False,
}
FUNCTION: dict[str, Any] = {
    "type": "function",
    "function": {"name": "look_up", "parameters": PARAMETERS, "strict": True},
}
OWN_TOOL: dict[str, Any] = {"name": "look_up", "input_schema": {"type": "object"}}
ASK: list[Any] = [{"role": "user", "content": "What of invoice 1?"}]
CALLS = Outcome(pieces=('{"id":', ' "1"}'), finish_reason="tool_calls", usage=USED)
SAYS = Outcome(pieces=("It is ", "paid."), usage=USED)
BILLED = {
    "input_tokens": 21,
    "input_tokens_details": {"cached_tokens": 6, "cache_write_tokens": 2},
    "output_tokens": 4,
    "total_tokens": 25,
}
"""Of openclaw/openclaw#114201."""
ERROR = {"code": "server_error", "message": "x"}
FAILED: Any = {"object": "response", "status": "failed", "error": ERROR, "usage": BILLED}
CREATED = {"type": "response.created", "response": {"id": "resp_1", "status": "in_progress"}}
SPOKE = {"type": "response.output_text.delta", "output_index": 0, "delta": "It "}


def failing(*events: Any) -> Raw:
    sent = (*events, {"type": "response.failed", "response": FAILED})
    return Raw(tuple(b"data: " + json.dumps(event).encode() + b"\n\n" for event in sent))


@dataclass(frozen=True, slots=True)
class Apps(Passage):
    """A gateway in front of a provider with three models: `gpt-5.4-pro` answers no chats, `gpt-6.1-sol` calls functions
    over the Responses API alone, `chatting` answers any chat. All cost the same."""

    @property
    def paths(self) -> list[str]:
        return [received.path for received in self.provider.received]

    def items(self, number: int = -1) -> list[str]:
        """The types of the input items that the provider received."""
        asked: Any = self.provider.received[number].json["input"]
        return [item["type"] for item in asked]

    async def entries(self, count: int) -> list[Entry]:
        await until(lambda: len(self.service.rig.ledger.entries) >= count)
        assert not self.service.rig.ledger.open
        return self.service.rig.ledger.entries


@pytest.fixture
async def passage() -> AsyncGenerator[Apps]:
    service = Service(Rig())
    service.rig.pipeline.snapshot = make_snapshot(
        candidates=[
            make_candidate(name, backend="one", upstream_model=name, prices=make_prices(10.0, 40.0), supports=SUPPORTS)
            for name in ("gpt-5.4-pro", "gpt-6.1-sol", "chatting")
        ]
    )
    async with ScriptedProvider() as provider, serving(service.app) as url:
        spoken = OpenAICompatibleBackend(
            "one", provider.base_url, "sk", paths=OPENAI_PATHS, dialect=dialect_of("openai")
        )
        service.rig.pipeline.backends = {"one": TranslatingBackend(spoken, native=OPENAI_PATHS)}
        yield Apps(service, provider, url)
        await spoken.aclose()


@pytest.mark.parametrize("is_stream", [False, True])
async def test_a_chat_with_a_model_that_answers_none(passage: Apps, is_stream: bool) -> None:
    passage.provider.plan([SAYS])
    asked: Any = {"model": "gpt-5.4-pro", "messages": ASK, "max_completion_tokens": 500}
    async with passage.openai() as client:
        if is_stream:
            async with client.chat.completions.stream(**asked, stream_options={"include_usage": True}) as stream:
                answer: Any = await stream.get_final_completion()
        else:
            answer = await client.chat.completions.create(**asked)
    [choice] = answer.choices
    assert (choice.message.content, choice.finish_reason) == ("It is paid.", "stop")
    assert answer.usage.completion_tokens_details.reasoning_tokens == 30
    assert answer.usage.prompt_tokens_details.cached_tokens == 64
    assert passage.paths == ["/v1/responses"]
    sent = passage.provider.received[0].json
    assert (sent["store"], sent["max_output_tokens"], sent["model"]) == (False, 500, "gpt-5.4-pro")
    [entry] = await passage.entries(1)
    assert (entry.status, entry.intent.operation, entry.finish_reason) == (
        Status.completed,
        "chat.completions",
        "stop",
    )


@pytest.mark.parametrize("is_stream", [False, True])
async def test_tools_over_two_turns_with_what_was_thought(passage: Apps, is_stream: bool) -> None:
    passage.provider.plan([CALLS, SAYS])
    asked: Any = {"model": "gpt-6.1-sol", "tools": [FUNCTION], "reasoning_effort": "high"}
    async with passage.openai() as client:

        async def turn(messages: list[Any]) -> Any:
            if not is_stream:
                return await client.chat.completions.create(messages=messages, **asked)
            async with client.chat.completions.stream(messages=messages, **asked) as stream:
                return await stream.get_final_completion()

        first = (await turn(ASK)).choices[0]
        [call] = first.message.tool_calls
        assert (first.finish_reason, call.id, call.function.name) == ("tool_calls", "call_1", "look_up")
        assert json.loads(call.function.arguments) == {"id": "1"}
        said = first.message.model_dump(exclude_none=True, exclude={"parsed"})
        result = {"role": "tool", "tool_call_id": call.id, "content": "paid"}
        second = (await turn([*ASK, said, result])).choices[0]
    assert second.message.content == "It is paid."
    assert passage.paths == ["/v1/responses"] * 2
    assert passage.items() == ["message", "reasoning", "function_call", "function_call_output"]
    assert b'"encrypted_content":"gAAA-scripted"' in passage.provider.received[-1].body
    assert [entry.status for entry in await passage.entries(2)] == [Status.completed] * 2


@pytest.mark.parametrize("is_stream", [False, True])
async def test_messages_over_two_turns_with_what_was_thought(passage: Apps, is_stream: bool) -> None:
    passage.provider.plan([CALLS, SAYS])
    asked: Any = {"model": "gpt-6.1-sol", "max_tokens": 900, "tools": [OWN_TOOL]}
    async with passage.anthropic() as client:

        async def turn(messages: list[Any]) -> Any:
            if not is_stream:
                return await client.messages.create(messages=messages, **asked)
            async with client.messages.stream(messages=messages, **asked) as stream:
                return await stream.get_final_message()

        first = await turn(ASK)
        assert [block.type for block in first.content] == ["thinking", "tool_use"]
        assert (first.stop_reason, first.content[1].input) == ("tool_use", {"id": "1"})
        said = {"role": "assistant", "content": [block.to_dict() for block in first.content]}
        result = {"type": "tool_result", "tool_use_id": first.content[1].id, "content": "paid"}
        second = await turn([*ASK, said, {"role": "user", "content": [result]}])
    assert second.content[-1].text == "It is paid."
    assert (second.usage.cache_read_input_tokens, second.usage.output_tokens) == (64, 40)
    assert passage.items() == ["message", "reasoning", "function_call", "function_call_output"]
    assert b'"encrypted_content":"gAAA-scripted"' in passage.provider.received[-1].body
    assert [entry.intent.operation for entry in await passage.entries(2)] == ["messages"] * 2


async def test_a_message_without_tools_begins_with_its_text(passage: Apps) -> None:
    passage.provider.plan([SAYS])
    async with passage.anthropic() as client:
        answer = await client.messages.create(model="gpt-5.4-pro", max_tokens=900, messages=ASK)
    assert [block.type for block in answer.content] == ["text"]
    assert passage.paths == ["/v1/responses"]


async def test_structured_output(passage: Apps) -> None:
    class Invoice(BaseModel):
        number: int

    passage.provider.plan([Outcome(pieces=('{"number": 1}',), usage=USED)])
    async with passage.openai() as client:
        answer = await client.chat.completions.parse(model="gpt-5.4-pro", messages=ASK, response_format=Invoice)
    assert answer.choices[0].message.parsed == Invoice(number=1)
    form: Any = passage.provider.received[0].json["text"]
    assert (form["format"]["type"], form["format"]["strict"]) == ("json_schema", True)


async def test_it_costs_what_a_chat_of_the_same_tokens_costs(passage: Apps) -> None:
    passage.provider.plan([SAYS])
    async with passage.openai() as client:
        for model in ("gpt-5.4-pro", "chatting"):
            for stream in (True, False):
                answer: Any = await client.chat.completions.create(model=model, messages=ASK, stream=stream)
                if stream:
                    assert [chunk async for chunk in answer]
    assert passage.paths == ["/v1/responses"] * 2 + ["/v1/chat/completions"] * 2
    entries = await passage.entries(4)
    assert len({entry.cost for entry in entries}) == 1
    assert entries[0].cost is not None
    assert {(e.input_tokens, e.cached_input_tokens, e.output_tokens, e.reasoning_tokens) for e in entries} == {
        (120, 64, 40, 30)
    }
    assert not any(entry.is_usage_estimated for entry in entries)


async def test_an_answer_that_is_cut_says_so(passage: Apps) -> None:
    passage.provider.plan([Outcome(pieces=("It is",), finish_reason="length", usage=USED)])
    async with passage.openai() as client:
        answer = await client.chat.completions.create(model="gpt-5.4-pro", messages=ASK)
    assert (answer.choices[0].finish_reason, answer.choices[0].message.content) == ("length", "It is")


async def test_a_response_that_fails_before_it_says_anything_is_asked_again(passage: Apps) -> None:
    passage.provider.plan([failing(CREATED), SAYS])
    async with passage.openai() as client:
        stream = await client.chat.completions.create(model="gpt-5.4-pro", messages=ASK, stream=True)
        said = [chunk.choices[0].delta.content async for chunk in stream if chunk.choices]
    assert "".join(filter(None, said)) == "It is paid."
    [entry] = await passage.entries(1)
    assert [attempt.outcome for attempt in entry.attempts] == ["UpstreamUnavailable", "answered"]
    assert [attempt.cost_pico_usd for attempt in entry.attempts] == [(21 * 10 + 4 * 40) * 1_000_000, 0]
    assert not entry.is_usage_estimated


@pytest.mark.parametrize("is_native", [False, True])
async def test_one_that_fails_amid_its_answer_is_no_answer(passage: Apps, is_native: bool) -> None:
    passage.provider.plan([failing(CREATED, SPOKE)])
    async with passage.openai() as client:
        stream: Any = await (
            client.responses.create(model="gpt-5.4-pro", input="What of it?", stream=True)
            if is_native
            else client.chat.completions.create(model="gpt-5.4-pro", messages=ASK, stream=True)
        )
        with pytest.raises(openai.APIError):
            assert [chunk async for chunk in stream]
    [entry] = await passage.entries(1)
    assert (entry.status, entry.is_usage_estimated) == (Status.partial, False)
    assert (entry.input_tokens, entry.cached_input_tokens, entry.output_tokens) == (21, 6, 4)


async def test_what_it_cannot_be_asked_is_said(passage: Apps) -> None:
    async with passage.openai() as client:
        with pytest.raises(openai.BadRequestError, match="n: this model gives only one choice") as caught:
            await client.chat.completions.create(model="gpt-5.4-pro", messages=ASK, n=2)
    assert caught.value.param == "n"
    assert not passage.provider.received
