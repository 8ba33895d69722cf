"""Custom tools and namespaces of a Responses request in front of a chat backend, in both directions."""

import json
from time import process_time
from typing import Any

import pytest
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter

from backends.endpoints.responses_events import ResponsesEventWriter, response_from_answer
from backends.endpoints.responses_format import chat_body_from_responses
from backends.endpoints.responses_items import ResponseHead
from backends.errors import Untranslatable
from backends.formats.chat_chunks import (
    Answer,
    Head,
    done_chunk,
    finish_chunk,
    role_chunk,
    tool_arguments_chunk,
    tool_start_chunk,
)
from backends.http.sse import SseParser
from backends.usage import Usage

Json = dict[str, Any]
STREAM_EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
HEAD = Head("chatcmpl-1", "m", 7)
USAGE = Usage(input_tokens=12, output_tokens=5)
FUNCTION: Json = {"type": "function", "name": "weather", "parameters": {"type": "object"}}


def chat(**fields: Any) -> Json:
    return json.loads(chat_body_from_responses(json.dumps({"model": "m", "input": "hi", **fields}).encode()))


def events_of(payload: bytes) -> list[Json]:
    parser = SseParser()
    return [json.loads(event) for event in (*parser.receive(payload), *parser.finish())]


PATCH: Json = {"type": "custom", "name": "patch", "description": "Edits files."}
GRAMMAR = {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"}
FREE_TEXT = {
    "type": "object",
    "properties": {"input": {"type": "string"}},
    "required": ["input"],
    "additionalProperties": False,
}


def test_thousands_of_tools_and_calls_are_not_compared_each_with_all() -> None:
    names = [f"f{place:05}" for place in range(6_000)]
    calls: list[Json] = [
        {"type": "function_call", "call_id": "c", "name": f"{name}?", "arguments": "{}"} for name in names
    ]
    said: list[Json] = [{"role": "assistant", "content": "x" * 100} for _ in names]
    began = process_time()
    asked = chat(
        tools=[FUNCTION | {"name": name} for name in names],
        tool_choice={"type": "allowed_tools", "mode": "auto", "tools": [{"name": name} for name in names[::-1]]},
        input=[item for pair in zip(said, calls, strict=True) for item in pair],
    )
    assert [tool["function"]["name"] for tool in asked["tools"]] == names
    assert [len(message["tool_calls"]) for message in asked["messages"]] == [6_000]
    assert process_time() - began < 1  # it took seconds, in quadratic time


def test_a_custom_tool_is_a_function_of_one_text() -> None:
    (tool,) = chat(tools=[PATCH])["tools"]
    assert tool["function"] == {"name": "patch", "description": "Edits files.", "parameters": FREE_TEXT}
    (tool,) = chat(tools=[PATCH | {"format": GRAMMAR}])["tools"]
    assert tool["function"]["description"].endswith("follow this lark grammar:\nstart: /.+/")
    asked = chat(
        tools=[PATCH],
        tool_choice={"type": "custom", "name": "patch"},
        input=[
            {"type": "custom_tool_call", "call_id": "c", "name": "patch", "input": 'say "a"'},
            {"type": "custom_tool_call_output", "call_id": "c", "output": "done"},
        ],
    )
    assert asked["tool_choice"] == {"type": "function", "function": {"name": "patch"}}
    (call,) = asked["messages"][0]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"input": 'say "a"'}
    assert asked["messages"][1] == {"role": "tool", "tool_call_id": "c", "content": "done"}


NAMESPACES = [
    FUNCTION,
    {"type": "namespace", "name": "sea", "description": "At sea.", "tools": [FUNCTION, FUNCTION | {"name": "tide"}]},
]


def test_tools_that_the_input_offers_are_offered_from_the_beginning() -> None:
    later: Json = {"type": "additional_tools", "role": "developer", "tools": [FUNCTION | {"name": "tide"}]}
    translated = chat(tools=[FUNCTION], input=[{"role": "user", "content": "hi"}, later])
    assert [one["function"]["name"] for one in translated["tools"]] == ["weather", "tide"]
    assert [one["role"] for one in translated["messages"]] == ["user"]
    with pytest.raises(Untranslatable, match=r"additional_tools\.tools\[0\]\.type"):
        chat(input=[later | {"tools": [{"type": "web_search"}]}])


def test_the_functions_of_a_namespace_have_its_name_where_their_own_is_not_enough() -> None:
    assert [tool["function"]["name"] for tool in chat(tools=NAMESPACES)["tools"]] == ["weather", "sea__weather", "tide"]
    past = [
        {"type": "function_call", "call_id": "c", "namespace": "sea", "name": name, "arguments": "{}"}
        for name in ("weather", "tide", "gone")
    ]
    (message,) = chat(tools=NAMESPACES, input=past)["messages"]
    assert [one["function"]["name"] for one in message["tool_calls"]] == ["sea__weather", "tide", "gone"]
    choice = {"type": "function", "name": "tide"}
    assert chat(tools=NAMESPACES, tool_choice=choice)["tool_choice"]["function"]["name"] == "tide"


def test_a_search_that_may_not_reach_the_web_can_be_done_without() -> None:
    """Coding agents add one to every request, so without this they could use no other provider at all."""
    search = {"type": "web_search", "external_web_access": False}
    assert "tools" not in chat(tools=[search])
    with pytest.raises(Untranslatable, match="leave it out"):
        chat(tools=[search | {"external_web_access": True}])


def test_calls_come_back_as_the_tools_they_were_asked_for() -> None:
    head = ResponseHead("resp_1", 7, {"tools": [*NAMESPACES, PATCH]})
    given = [("c0", "sea__weather", "{}"), ("c1", "patch", '{"input":"say \\"a\\""}'), ("c2", "patch", "*** a patch")]
    answer = Answer(HEAD, finish_reason="tool_calls", usage=USAGE)
    chunks = [role_chunk(HEAD)]
    for place, (call_id, name, arguments) in enumerate(given):
        answer.add_tool_call(call_id, name, arguments)
        chunks.append(tool_start_chunk(HEAD, place, call_id, name))
        chunks += [tool_arguments_chunk(HEAD, place, half) for half in (arguments[:5], arguments[5:]) if half]
    chunks += [finish_chunk(HEAD, "tool_calls"), done_chunk()]
    response = json.loads(response_from_answer(answer.chunk().payload, USAGE, head, now=9))
    assert [
        (one["type"], one.get("namespace"), one["name"], one.get("arguments", one.get("input")))
        for one in response["output"]
    ] == [
        ("function_call", "sea", "weather", "{}"),
        ("custom_tool_call", None, "patch", 'say "a"'),
        ("custom_tool_call", None, "patch", "*** a patch"),
    ]
    writer = ResponsesEventWriter(head, now=lambda: 9)
    events = events_of(b"".join(writer.write(chunk) for chunk in chunks))
    assert events[-1]["response"]["output"] == response["output"]
    said = [(one["type"], one["delta"]) for one in events if "custom_tool_call_input.delta" in one["type"]]
    assert [text for _, text in said] == ['say "a"', "*** a patch"]
    assert [one["input"] for one in events if one["type"] == "response.custom_tool_call_input.done"] == [
        'say "a"',
        "*** a patch",
    ]
    for event in events:
        STREAM_EVENT.validate_python(event)


def test_what_agents_tell_each_other_is_said_not_to_be_encrypted() -> None:
    """Codex took every such text for OpenAI's ciphertext, which no other model can read."""
    spawn = {"name": "spawn_agent", "parameters": {"properties": {"message": {"type": "string", "encrypted": True}}}}
    head = ResponseHead("resp_1", 7, {"tools": [FUNCTION | spawn, FUNCTION]})
    answer = Answer(HEAD, finish_reason="tool_calls", usage=USAGE)
    for name in ("spawn_agent", "weather"):
        answer.add_tool_call(name, name, "{}")
    output = json.loads(response_from_answer(answer.chunk().payload, USAGE, head, now=9))["output"]
    assert [item.get("encrypted_function_args") for item in output] == [[], None]
