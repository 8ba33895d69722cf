"""Reasoning of earlier turns is sent to providers that require it, and not to those that reject it."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from backends.dialects import DIALECTS, ENGINE_THOUGHTS
from backends.endpoints.messages_events import message_from_answer
from backends.endpoints.messages_format import chat_body_from_messages
from backends.endpoints.responses_events import response_from_answer
from backends.endpoints.responses_format import chat_body_from_responses
from backends.endpoints.responses_items import ENCRYPTED, ResponseHead
from backends.errors import Untranslatable
from backends.formats.chat_view import Text, parse_chat
from backends.formats.openai_request import build_body, without_past_reasoning
from backends.formats.past_thinking import (
    UNKNOWN_SIGNATURE,
    UNSIGNED,
    carried_for,
    carry,
    detail_of,
    details_of,
    seal,
    thought_of,
    with_every_thought,
    with_signed_calls,
    without_carried,
    without_thinking_parts,
    without_unsigned,
)
from backends.protocol import Call

Json = dict[str, Any]
CALL: Json = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
SAID: Json = {"role": "assistant", "content": "Let me see.", "tool_calls": [CALL]}
THOUGHT: Json = SAID | {"reasoning_content": "It asks for the weather.\u00e9"}
RESULT: Json = {"role": "tool", "tool_call_id": "c1", "content": "sunny"}
ANSWER = json.dumps({"model": "m", "choices": [{"message": THOUGHT, "finish_reason": "tool_calls"}]}).encode()
HELLO: Json = {"role": "user", "content": "hi"}


def of_messages(content: object, thoughts: tuple[str, ...]) -> Json:
    asked = {"model": "m", "max_tokens": 9, "messages": [HELLO, {"role": "assistant", "content": content}]}
    return json.loads(chat_body_from_messages(json.dumps(asked).encode(), thoughts=thoughts))["messages"][1]


def of_responses(items: list[Json], thoughts: tuple[str, ...]) -> list[Json]:
    asked = {"model": "m", "input": [HELLO, *items]}
    return json.loads(chat_body_from_responses(json.dumps(asked).encode(), thoughts=thoughts))["messages"][1:]


def answered(**asked: object) -> list[Json]:
    head = ResponseHead("resp_r1", 1, {"model": "m", **asked})
    return json.loads(response_from_answer(ANSWER, None, head, now=2.0))["output"]


@pytest.mark.parametrize("names", [(), ("reasoning_content",), ENGINE_THOUGHTS])
def test_a_message_gives_back_what_was_thought(names: tuple[str, ...]) -> None:
    content = json.loads(message_from_answer(ANSWER, None, message_id="msg_1", model="m"))["content"]
    assert of_messages(content, names) == SAID | dict.fromkeys(names, THOUGHT["reasoning_content"])


@pytest.mark.parametrize("names", [(), ("reasoning_content",), ENGINE_THOUGHTS])
def test_a_response_gives_back_what_was_thought(names: tuple[str, ...]) -> None:
    output = answered()
    result = {"type": "function_call_output", "call_id": "c1", "output": "sunny"}
    expected = SAID | dict.fromkeys(names, THOUGHT["reasoning_content"])
    assert of_responses([*output, result], names) == [expected, RESULT]


def test_a_client_that_keeps_only_what_is_encrypted_gives_it_back_too() -> None:
    output = answered(include=[ENCRYPTED], store=False)
    kept = [{name: value for name, value in item.items() if name not in ("id", "content")} for item in output[:1]]
    assert kept[0]["encrypted_content"] == seal(THOUGHT["reasoning_content"])
    assert of_responses([*kept, *output[1:]], ("reasoning_content",)) == [THOUGHT]
    assert "encrypted_content" not in answered()[0]


def test_a_summary_that_we_wrote_is_what_was_thought() -> None:
    output = answered(reasoning={"summary": "auto"})
    assert output[0]["summary"] == [{"type": "summary_text", "text": THOUGHT["reasoning_content"]}]
    assert of_responses(output, ("reasoning_content",)) == [THOUGHT]
    assert of_responses([output[0] | {"id": "rs_68af"}, *output[1:]], ("reasoning_content",)) == [SAID]


def test_thoughts_before_each_part_of_one_answer_stay_together() -> None:
    reasoning = [{"type": "reasoning", "content": [{"type": "reasoning_text", "text": text}]} for text in "ab"]
    message = {"type": "message", "role": "assistant", "content": "Let me see."}
    call = {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}"}
    items = [reasoning[0], message, reasoning[1], call]
    assert of_responses(items, ("reasoning_content",)) == [SAID | {"reasoning_content": "a\n\nb"}]


def test_a_thought_before_a_question_is_nobodys() -> None:
    thought = {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "hm"}]}
    said = {"role": "assistant", "content": "a"}
    assert of_responses([thought, HELLO, said], ("reasoning_content",)) == [HELLO, said]


@pytest.mark.parametrize("kind", [{"type": "item_reference"}, {"type": None}, {}])
def test_a_reference_to_what_was_thought_is_passed_over(kind: Json) -> None:
    output = answered()
    assert of_responses([kind | {"id": output[0]["id"]}, *output[1:]], ("reasoning_content",)) == [SAID]


def test_a_reference_to_what_was_said_is_refused_with_a_way_out() -> None:
    with pytest.raises(Untranslatable, match=r"input\[1\].*in full \(store: false\)"):
        of_responses([{"type": "item_reference", "id": answered()[1]["id"]}], ())


@given(st.text())
def test_what_is_sealed_can_be_read(thought: str) -> None:
    assert thought_of({"encrypted_content": seal(thought)}) == thought


@pytest.mark.parametrize("sealed", ["gAAAAB", "breakeven:!", "breakeven:/w==", None, 7])
def test_what_another_encrypted_is_not_read(sealed: object) -> None:
    assert thought_of({"encrypted_content": sealed, "content": None}) == ""


def told(messages: list[Json], provider: str) -> list[Json]:
    body = json.dumps({"model": "auto", "messages": messages}).encode()
    return json.loads(build_body(Call("chat.completions", "up", body, False, "r-1"), DIALECTS[provider]))["messages"]


@pytest.mark.parametrize("provider", ["deepseek", "moonshot"])
@pytest.mark.parametrize("thought", [{}, {"reasoning_content": ""}, {"reasoning_content": None}])
def test_no_thought_is_missed_where_tools_were_called(thought: Json, provider: str) -> None:
    last = {"role": "assistant", "content": "It is sunny."}
    given = [HELLO, SAID | thought, RESULT, last, HELLO]
    blank = {"reasoning_content": " "}
    assert told(given, provider) == [HELLO, SAID | blank, RESULT, last | blank, HELLO]


@pytest.mark.parametrize(
    "messages",
    [
        b'[ {"role":"user","content":"hi"}, {"role": "assistant", "content" : "\\u0061"}]',
        b'[{"role":"assistant", "reasoning_content" : "hm","tool_calls":[ ]}]',
        b'{"tool_calls": 1}',
    ],
)
def test_messages_that_lack_no_thought_keep_their_bytes(messages: bytes) -> None:
    assert with_every_thought(messages) == messages


def signed(signature: str = UNKNOWN_SIGNATURE, **others: object) -> Json:
    return {"extra_content": {"google": {"thought_signature": signature, **others}}}


@pytest.mark.parametrize(
    ("calls", "told"),
    [
        ([CALL], [CALL | signed()]),
        ([CALL | {"extra_content": None}, CALL], [CALL | signed(), CALL]),
        ([CALL | {"extra_content": {"google": {"a": 1}}}], [CALL | signed(a=1)]),
        ([CALL | signed("theirs"), CALL], [CALL | signed("theirs"), CALL]),
        ([], []),
    ],
)
def test_gemini_reads_a_signature_before_every_call(calls: list[Json], told: list[Json]) -> None:
    """It answers 400 to a call without one: to every second turn of clients that do not keep `extra_content`, and to
    every conversation with tools begun by another model."""
    messages = [HELLO, {"role": "assistant", "content": None, "tool_calls": calls}, RESULT]
    said = json.loads(with_signed_calls(json.dumps(messages).encode()))
    assert [message.get("tool_calls") for message in said] == [None, told, None]


@pytest.mark.parametrize(
    "messages",
    [
        b'[ {"role":"user","content":"hi"} ]',
        b'[ {"role":"assistant" ,"tool_calls":null} ]',
        b'[ {"role":"assistant" ,"tool_calls":[{"id":"c","extra_content":{"google":{"thought_signature":"s"}}}]} ]',
        b'[ {"role":"assistant" ,"tool_calls":"odd"}, {"tool_calls":[1]} ]',
        b'[ {"role":"assistant" ,"tool_calls":[{"extra_content":"odd"}]} ]',
        b'{"tool_calls" : 1}',
    ],
)
def test_other_calls_stay_as_they_are(messages: bytes) -> None:
    assert with_signed_calls(messages) == messages


def test_anthropic_is_sent_no_thinking_that_nobody_signed() -> None:
    ours = {"type": "thinking", "thinking": "hm", "signature": UNSIGNED}
    carried = {"type": "thinking", "thinking": "", "signature": carry("gAAA", "openai")}
    theirs = {"type": "thinking", "thinking": "hm", "signature": "EqQBCg=="}
    use = {"type": "tool_use", "id": "t", "name": "f", "input": {"type": "thinking", "signature": UNSIGNED}}
    given = [
        HELLO,
        {"role": "assistant", "content": [ours, use, ours, carried]},
        {"role": "assistant", "content": [theirs, use]},
        {"role": "assistant", "content": [ours]},
        {"role": "assistant", "content": [use]},
    ]
    kept = json.loads(without_unsigned(json.dumps(given).encode()))
    assert [message["content"] for message in kept] == ["hi", [use], [theirs, use], [use]]


@pytest.mark.parametrize(
    "messages",
    [
        b'[ {"role":"assistant","content":[{"type": "thinking","thinking":"hm" ,"signature":"Eq=="}]} ]',
        b'[ {"role":"user","content":"\\"signature\\":\\"breakeven\\""} ]',
        b'[ {"role":"user","content":"breakeven"}, {"content":[ {"signature":"breakeven"} ]}, {"role":"user"} ]',
        b'{"signature" : "breakeven"}',
    ],
)
def test_messages_that_are_signed_keep_their_bytes(messages: bytes) -> None:
    assert without_unsigned(messages) == messages


def test_a_provider_of_responses_is_sent_no_reasoning_of_ours() -> None:
    ours = answered(include=[ENCRYPTED])[0]
    nameless = {name: value for name, value in ours.items() if name != "id"}
    theirs = {"type": "reasoning", "id": "rs_68af", "summary": [], "encrypted_content": "gAAA"}
    reference = {"type": "item_reference", "id": ours["id"]}
    body = json.dumps({"model": "auto", "input": [HELLO, ours, nameless, reference, theirs, *answered()]}).encode()
    sent = json.loads(build_body(Call("responses", "up", body, False, "r-1")))["input"]
    assert sent == [HELLO, theirs, *answered()[1:]]


@pytest.mark.parametrize(
    "items", [b'"rs_resp_"', b'[ "rs_resp_", {"type":"message", "id":"rs_resp_1"} ]', b'[ {"id" : "rs_68af"} ]']
)
def test_an_input_without_reasoning_of_ours_keeps_its_bytes(items: bytes) -> None:
    body = b'{"model":"up","input":%b}' % items
    assert build_body(Call("responses", "up", body, False, "r-1")) == body


@pytest.mark.parametrize("body", [b"{}", b'{"input": "x"}', b'{"input":[ {"type":"message", "id":"m"} ]}'])
def test_a_request_without_reasoning_keeps_its_bytes(body: bytes) -> None:
    assert without_past_reasoning(body) == body


DETAIL = detail_of(carry("gAAA", "openai"), 1)
OTHERS = {"type": "reasoning.encrypted", "data": "gAAA", "index": 0}


def test_what_is_carried_is_read_by_whom_it_is_from() -> None:
    assert carried_for("openai", DETAIL["data"]) == "gAAA"
    assert [carried_for("azure", DETAIL["data"]), carried_for("openai", "gAAA"), carried_for("openai", 5)] == [None] * 3
    assert details_of({"reasoning_details": [DETAIL, OTHERS, 5, DETAIL | {"index": "x"}]}) == [
        (0, DETAIL["data"]),
        (1, DETAIL["data"]),
    ]
    assert details_of({"reasoning_details": "x"}) == details_of({}) == []


def test_others_are_told_nothing_that_is_carried() -> None:
    given = [
        HELLO,
        {"role": "assistant", "content": "x", "reasoning_details": [DETAIL]},
        {"role": "assistant", "content": "y", "reasoning_details": [OTHERS, DETAIL]},
    ]
    assert json.loads(without_carried(json.dumps(given).encode())) == [
        HELLO,
        {"role": "assistant", "content": "x"},
        {"role": "assistant", "content": "y", "reasoning_details": [OTHERS]},
    ]


@pytest.mark.parametrize(
    "messages",
    [
        b'[ {"role":"user","content":"hi"} ]',
        b'[ {"role":"assistant","reasoning_details":[ {"data":"gAAA"} ]} ]',
        b'[ {"role":"user","content":"\\"breakeven: reasoning_details\\""} ]',
        b'[ {"reasoning_details":"breakeven:x"} ]',
        b'"breakeven:reasoning_details',
    ],
)
def test_messages_that_carry_nothing_stay_as_they_are(messages: bytes) -> None:
    assert without_carried(messages) == messages


MISTRALS: Json = {"type": "thinking", "thinking": [{"type": "text", "text": "It asks for the weather."}]}
LET_ME: Json = {"type": "text", "text": "Let me see."}


@pytest.mark.parametrize(("parts", "left"), [([MISTRALS, LET_ME], [LET_ME]), ([MISTRALS], "")])
def test_thinking_among_the_parts_is_told_to_mistral_alone(parts: list[Json], left: object) -> None:
    chat = json.dumps({"model": "m", "messages": [HELLO, SAID | {"content": parts}, RESULT]}).encode()
    call = Call("chat.completions", "m", chat, False, "r-1")
    told = {provider: json.loads(build_body(call, DIALECTS[provider]))["messages"][1] for provider in DIALECTS}
    thinking = json.loads(build_body(replace(call, reasons=True), DIALECTS["mistral"]))["messages"][1]
    assert thinking["content"] == parts
    assert [message["content"] for message in told.values()] == [left] * len(told)
    [_, answer, _] = parse_chat(chat).turns
    assert [part for part in answer.parts if isinstance(part, Text)] == ([Text("Let me see.")] if left else [])


@pytest.mark.parametrize(
    "messages",
    [b'[ {"role":"user","content":"\\"thinking\\""} ]', b'[ {"content":[ {"type":"thinking"} }', b'"thinking"'],
)
def test_messages_without_thinking_among_their_parts_keep_their_bytes(messages: bytes) -> None:
    assert without_thinking_parts(messages) == messages
