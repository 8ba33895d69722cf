"""Gemini's generateContent requests translated to chats; answers are tested in test_content_answers.py."""

import base64
import json
import re
from time import process_time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.formats.chat_view import parse_chat
from backends.formats.gemini import build_content_body
from backends.formats.thought_signatures import seal_details
from tests.unit.backends.endpoints.content_bodies import HI, Json, asked, translate

LEAST: Json = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
GOOGLES: Json = {
    "type": "OBJECT",
    "properties": {"b": {"type": "STRING", "nullable": True, "format": "enum"}, "a": {"type": "INTEGER"}},
    "required": ["a"],
    "propertyOrdering": ["a", "b"],
}
SCHEMA: Json = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": ["string", "null"]}},
    "required": ["a"],
}
CLOSED = SCHEMA | {"additionalProperties": False}


def json_format(schema: Json) -> Json:
    named = {"name": "answer", "schema": schema, "strict": False}
    return {"response_format": {"type": "json_schema", "json_schema": named}}


FUNCTION: Json = {"type": "function", "function": {"name": "f", "description": "d", "parameters": SCHEMA}}
DECLARED: list[Json] = [{"functionDeclarations": [{"name": "f", "description": "d", "parameters": GOOGLES}]}]
TWO: list[Json] = [{"functionDeclarations": [{"name": "f"}]}, {"function_declarations": [{"name": "g"}]}]
F: Json = {"type": "function", "function": {"name": "f"}}
G: Json = {"type": "function", "function": {"name": "g"}}
CONFIGS: list[tuple[Json, Json]] = [
    ({}, {}),
    (
        {"temperature": 1.5, "topP": 0.5, "presencePenalty": 1, "frequencyPenalty": 2, "seed": 7},
        {"temperature": 1.5, "top_p": 0.5, "presence_penalty": 1, "frequency_penalty": 2, "seed": 7},
    ),
    ({"maxOutputTokens": "9", "candidate_count": 2.0}, {"max_tokens": 9, "n": 2}),
    ({"stopSequences": ["x"], "topK": 3, "mediaResolution": "LOW"}, {"stop": ["x"]}),
    ({"responseLogprobs": True, "logprobs": 3}, {"logprobs": True, "top_logprobs": 3}),
    ({"responseMimeType": "text/plain"}, {}),
    ({"responseMimeType": "application/json", "responseSchema": GOOGLES}, json_format(CLOSED)),
    ({"response_mime_type": "application/json", "response_json_schema": SCHEMA}, json_format(SCHEMA)),
    (
        {"responseMimeType": "application/json", "responseSchema": {"type": "OBJECT", "properties": {"a": {}}}},
        json_format({"type": "object", "properties": {"a": {}}, "additionalProperties": False}),
    ),
    ({"thinkingConfig": {"thinkingBudget": 0, "includeThoughts": True}}, {}),
    ({"responseModalities": ["TEXT"]}, {}),
]
FIELDS: list[tuple[Json, Json]] = [
    ({"safetySettings": [{"category": "C", "threshold": "BLOCK_NONE"}], "labels": {"a": "b"}, "store": False}, {}),
    ({"serviceTier": "PRIORITY"}, {"service_tier": "priority"}),
    ({"service_tier": "SERVICE_TIER_FLEX"}, {"service_tier": "flex"}),
    ({"serviceTier": "STANDARD"}, {}),
    ({"tools": DECLARED}, {"tools": [FUNCTION]}),
    ({"tools": [{"functionDeclarations": [{"name": "f", "parametersJsonSchema": SCHEMA}]}]}, {
        "tools": [{"type": "function", "function": {"name": "f", "parameters": SCHEMA}}]
    }),
    ({"tools": [{"functionDeclarations": [{"name": "f", "parameters": {"type": "ARRAY"}}]}]}, {
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "array", "items": {}}}}]
    }),
    ({"tools": TWO, "toolConfig": {"functionCallingConfig": {"mode": "AUTO"}}}, {"tools": [F, G]}),
    (
        {"tools": TWO, "toolConfig": {"functionCallingConfig": {"mode": "NONE"}}},
        {"tools": [F, G], "tool_choice": "none"},
    ),
    (
        {"tools": TWO, "tool_config": {"function_calling_config": {"mode": "ANY", "allowed_function_names": ["g"]}}},
        {"tools": [G], "tool_choice": {"type": "function", "function": {"name": "g"}}},
    ),
    (
        {"tools": TWO, "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["f", "g"]}}},
        {"tools": [F, G], "tool_choice": "required"},
    ),
    ({"toolConfig": {"functionCallingConfig": {"mode": "ANY"}}}, {}),
    ({"tools": None, "generationConfig": None, "systemInstruction": None}, {}),
]  # fmt: skip


@pytest.mark.parametrize(("config", "expected"), CONFIGS)
def test_how_an_answer_is_made(config: Json, expected: Json) -> None:
    assert translate({"generationConfig": config}) == LEAST | expected


@pytest.mark.parametrize(("body", "expected"), FIELDS)
def test_fields(body: Json, expected: Json) -> None:
    assert translate(body) == LEAST | expected


@pytest.mark.parametrize(
    ("thinking", "effort"),
    [
        ({"thinkingBudget": 0}, "minimal"),
        ({"thinkingBudget": 1024}, "low"),
        ({"thinking_budget": 8000}, "medium"),
        ({"thinkingBudget": 24576}, "high"),
        ({"thinkingBudget": -1}, None),
        ({"thinkingLevel": "HIGH"}, "high"),
        ({"thinkingLevel": "THINKING_LEVEL_UNSPECIFIED"}, None),
        ({"includeThoughts": True}, None),
    ],
)
def test_how_hard_to_think_is_said_to_those_who_do(thinking: Json, effort: str | None) -> None:
    body: Json = {"generationConfig": {"thinkingConfig": thinking}}
    assert "reasoning_effort" not in translate(body)
    assert translate(body, takes_effort=True).get("reasoning_effort") == effort
    assert asked(body).shows_thoughts is ("includeThoughts" in thinking)


def test_a_stream_brings_its_usage() -> None:
    assert translate({}, is_stream=True) == LEAST | {"stream": True, "stream_options": {"include_usage": True}}


def test_json_without_a_schema_is_spoken_of_because_openai_wants_that() -> None:
    said = translate({"generationConfig": {"responseMimeType": "application/json"}})
    assert said["response_format"] == {"type": "json_object"}
    assert said["messages"][0] == {"role": "system", "content": "Answer in JSON."}
    spoken: Json = {"contents": [{"parts": [{"text": "as JSON, please"}]}]}
    said = translate(spoken | {"generationConfig": {"responseMimeType": "application/json"}})
    assert [message["role"] for message in said["messages"]] == ["user"]


def test_a_list_is_asked_for_inside_of_an_object() -> None:
    config = {"responseMimeType": "application/json", "responseSchema": {"type": "ARRAY", "items": GOOGLES}}
    found = asked({"generationConfig": config})
    schema = json.loads(found.body)["response_format"]["json_schema"]["schema"]
    assert schema["properties"] == {"answer": {"type": "array", "items": CLOSED}}
    assert found.wrapping == "json"
    words = {"type": "STRING", "enum": ["a", "b"]}
    found = asked({"generationConfig": {"responseMimeType": "text/x.enum", "responseSchema": words}})
    assert found.wrapping == "text"
    defined = {"type": "array", "items": {"$ref": "#/$defs/A"}, "$defs": {"A": SCHEMA}}
    found = asked({"generationConfig": {"responseMimeType": "application/json", "responseJsonSchema": defined}})
    schema = json.loads(found.body)["response_format"]["json_schema"]["schema"]
    assert schema["$defs"] == {"A": SCHEMA}


def test_a_conversation() -> None:
    contents: list[Json] = [
        {
            "parts": [
                {"text": "look"},
                {"inlineData": {"mimeType": "image/png", "data": "iVBO_-4="}},
                {"inline_data": {"mime_type": "application/pdf", "data": "JVBERi0=", "display_name": "a.pdf"}},
                {"inlineData": {"mimeType": "audio/mpeg", "data": "SUQz"}},
                {"inlineData": {"mimeType": "text/csv", "data": base64.b64encode(b"a,b").decode()}},
                {"fileData": {"fileUri": "https://x/y.png?z=1"}},
            ]
        },
        {
            "role": "model",
            "parts": [
                {"text": "hm", "thought": True},
                {"text": "I "},
                {"text": "see."},
                {"functionCall": {"name": "f", "args": {"a": 1}}, "thoughtSignature": "Eq=="},
                {"functionCall": {"id": "own", "name": "g"}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"id": "own", "name": "g", "response": {"output": "two"}}},
                {
                    "functionResponse": {
                        "name": "f",
                        "response": {"result": 1},
                        "parts": [{"inlineData": {"mimeType": "image/png", "data": "iVBO"}}],
                    }
                },
                {"text": "and?"},
            ],
        },
    ]
    system = {"parts": [{"text": "be brief"}, {"text": "be kind"}]}
    said = translate({"contents": contents, "systemInstruction": system}, thoughts=("reasoning",), signs_calls=True)
    assert said["messages"] == [
        {"role": "system", "content": "be brief\nbe kind"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "look"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBO/+4="}},
                {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0="}},
                {"type": "input_audio", "input_audio": {"data": "SUQz", "format": "mp3"}},
                {"type": "text", "text": "a,b"},
                {"type": "image_url", "image_url": {"url": "https://x/y.png?z=1"}},
            ],
        },
        {
            "role": "assistant",
            "content": "I see.",
            "tool_calls": [
                {
                    "id": "call_1",
                    "type": "function",
                    "function": {"name": "f", "arguments": '{"a":1}'},
                    "extra_content": {"google": {"thought_signature": "Eq=="}},
                },
                {"id": "own", "type": "function", "function": {"name": "g", "arguments": "{}"}},
            ],
            "reasoning": "hm",
        },
        {"role": "tool", "tool_call_id": "own", "content": '{"output":"two"}'},
        {"role": "tool", "tool_call_id": "call_1", "content": '{"result":1}'},
        {
            "role": "user",
            "content": [
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBO"}},
                {"type": "text", "text": "and?"},
            ],
        },
    ]
    without = translate({"contents": contents})["messages"][1]
    assert "reasoning" not in without
    assert "extra_content" not in without["tool_calls"][0]


def test_a_streamed_answer_that_was_kept_piece_by_piece_is_one_message() -> None:
    pieces = [{"text": "I "}, {"text": "see."}, {"functionCall": {"name": "f"}}, {"text": ""}]
    kept = [{"role": "model", "parts": [piece]} for piece in pieces]
    given = {"parts": [{"functionResponse": {"name": "f", "response": {}}}]}
    said = translate({"contents": [*HI, *kept, given, *kept[:2]]})["messages"]
    assert [message["role"] for message in said] == ["user", "assistant", "tool", "assistant"]
    assert (said[1]["content"], len(said[1]["tool_calls"]), said[3]["content"]) == ("I see.", 1, "I see.")


def test_names_that_only_gemini_and_mcp_take_are_renamed_everywhere() -> None:
    """OpenAI answers 400: "Invalid 'tools[0].function.name': string does not match pattern", Anthropic likewise."""
    names = ["files.read", "files:read", "files_read", "f" * 65]
    made = asked(
        {
            "contents": [
                *HI,
                {"role": "model", "parts": [{"functionCall": {"name": "files.read"}}]},
                {"role": "user", "parts": [{"functionResponse": {"name": "files.read", "response": {}}}]},
            ],
            "tools": [{"functionDeclarations": [{"name": name} for name in names]}],
            "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["files.read"]}},
        }
    )
    chat = json.loads(made.body)
    [sent] = [tool["function"]["name"] for tool in chat["tools"]]
    assert re.fullmatch("files_read_[0-9a-f]{8}", sent)
    assert chat["messages"][1]["tool_calls"][0]["function"]["name"] == sent
    assert chat["tool_choice"]["function"]["name"] == sent
    assert sorted(made.names.values()) == sorted({*names} - {"files_read"})
    assert all(re.fullmatch("[a-zA-Z0-9_-]{1,64}", name) for name in made.names)
    assert made.names[sent] == "files.read"


def test_two_calls_of_one_name_are_answered_in_their_order() -> None:
    call, given = {"functionCall": {"name": "f"}}, {"functionResponse": {"name": "f", "response": {}}}
    turns = [*HI, {"role": "model", "parts": [call, call]}, {"role": "function", "parts": [given, given]}]
    said = translate({"contents": turns})["messages"]
    assert [message["tool_call_id"] for message in said[2:]] == [one["id"] for one in said[1]["tool_calls"]]


def test_many_results_and_pieces_are_not_compared_each_with_all() -> None:
    calls = [{"functionCall": {"name": f"f{number}"}} for number in range(8_000)]
    results = [{"functionResponse": {"name": f"f{number}", "response": {}}} for number in range(8_000)]
    turns: list[Json] = [{"role": "model", "parts": [call]} for call in calls]
    names = [f"p{number}" for number in range(14_000)]
    schema = GOOGLES | {"properties": {name: {} for name in names}, "propertyOrdering": [*names[::-1]]}
    tools = [{"functionDeclarations": [{"name": "f", "parameters": schema}]}]
    began = process_time()
    asks = translate({"contents": [*HI, *turns, {"parts": results}], "tools": tools})
    assert list(asks["tools"][0]["function"]["parameters"]["properties"]) == names[::-1]
    said = asks["messages"]
    assert [message["tool_call_id"] for message in said[2:]] == [one["id"] for one in said[1]["tool_calls"]]
    assert process_time() - began < 2  # the results alone took longer, blocking the worker


def test_what_a_provider_encrypted_goes_back_to_it() -> None:
    signature = seal_details([(0, "breakeven:openai:zzz")]).replace("+", "-").replace("/", "_")
    parts = [{"functionCall": {"name": "f"}, "thoughtSignature": signature}]
    answer = translate({"contents": [*HI, {"role": "model", "parts": parts}]}, signs_calls=True)["messages"][1]
    assert [detail["data"] for detail in answer["reasoning_details"]] == ["breakeven:openai:zzz"]
    assert "extra_content" not in answer["tool_calls"][0]


TEXTS = st.text(min_size=1, max_size=8)
ARGUMENTS = st.dictionaries(TEXTS, st.integers(0, 9) | TEXTS, max_size=2)


@st.composite
def conversations(draw: st.DrawFn) -> list[Json]:
    """Turns as written by our own adapter."""
    contents: list[Json] = [{"role": "user", "parts": [{"text": draw(TEXTS)}]}]
    for turn in range(draw(st.integers(0, 3))):
        calls = [
            {"id": f"c{turn}{place}", "name": "f", "args": draw(ARGUMENTS)} for place in range(draw(st.integers(0, 2)))
        ]
        said = [{"text": draw(TEXTS)}] if not calls or draw(st.booleans()) else []
        signed: list[Json] = [{"functionCall": call, "thoughtSignature": "Eq=="} for call in calls]
        contents.append({"role": "model", "parts": [*said, *signed]})
        given = [
            {"functionResponse": {"id": call["id"], "name": "f", "response": {"a": draw(st.integers(0, 9))}}}
            for call in calls
        ]
        spoken = [{"text": draw(TEXTS)}] if not given or draw(st.booleans()) else []
        contents.append({"role": "user", "parts": [*given, *spoken]})
    return contents


@settings(deadline=None)
@given(conversations())
def test_a_conversation_comes_back_as_it_was(contents: list[Json]) -> None:
    """Translated to a chat, and back by the Gemini adapter."""
    chat = asked({"contents": contents}, signs_calls=True).body
    assert json.loads(build_content_body(parse_chat(chat), "m"))["contents"] == contents


def test_one_alone_is_a_list_of_one() -> None:
    """As in Google's own parser and in its documentation."""
    listed = {
        "contents": HI,
        "systemInstruction": {"parts": [{"text": "be brief"}]},
        "tools": [{"functionDeclarations": [{"name": "f"}]}],
        "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["f"]}},
        "generationConfig": {"stopSequences": ["x"], "responseModalities": ["TEXT"]},
    }
    alone = {
        "contents": {"role": "user", "parts": {"text": "hi"}},
        "systemInstruction": {"parts": {"text": "be brief"}},
        "tools": {"functionDeclarations": {"name": "f"}},
        "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": "f"}},
        "generationConfig": {"stopSequences": "x", "responseModalities": "TEXT"},
    }
    assert translate(alone) == translate(listed)
