"""Chats with turns that were broken off."""

import msgspec
import pytest

from backends.formats.strict_turns import in_order, mend_for
from backends.formats.unfinished_turns import (
    with_every_output,
    with_every_result,
    without_empty_answers,
    without_empty_messages,
    without_empty_texts,
)

Json = dict[str, object]

HI: Json = {"role": "user", "content": "Hi"}
SAID: Json = {"role": "assistant", "content": "Hello"}


def calls(*ids: str, **beside: object) -> Json:
    return {"role": "assistant", "tool_calls": [{"id": one, "type": "function"} for one in ids], **beside}


def result(call_id: str, content: str = "7") -> Json:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def none_of(call_id: str) -> Json:
    return result(call_id, "Interrupted: this call has no result.")


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([HI, calls("a"), HI], [HI, calls("a"), none_of("a"), HI]),
        ([HI, calls("a", "b"), result("b"), HI], [HI, calls("a", "b"), none_of("a"), result("b"), HI]),
        ([calls("a"), HI, result("a"), SAID], [calls("a"), result("a"), HI, SAID]),
        ([calls("a"), SAID, result("a")], [calls("a"), none_of("a"), SAID, {"role": "user", "content": "7"}]),
        ([HI, result("a"), SAID], [HI, {"role": "user", "content": "7"}, SAID]),
        ([calls("a"), result("a"), result("a")], [calls("a"), result("a"), {"role": "user", "content": "7"}]),
        (
            [HI, calls("a"), result("a"), calls("a"), result("a")],
            [HI, calls("a"), result("a"), calls("a"), result("a")],
        ),
    ],
)
def test_each_call_has_its_result(messages: list[Json], expected: list[Json]) -> None:
    said = with_every_result(msgspec.json.encode(messages))
    assert msgspec.json.decode(said) == expected
    assert with_every_result(said) == said


@pytest.mark.parametrize("nothing", [{}, {"content": None}, {"content": ""}, {"content": []}])
@pytest.mark.parametrize("no_calls", [{}, {"tool_calls": []}, {"tool_calls": None}])
def test_an_answer_without_anything_is_left_out(nothing: Json, no_calls: Json) -> None:
    empty: Json = {"role": "assistant", "reasoning_content": "Hm.", **nothing, **no_calls}
    assert msgspec.json.decode(without_empty_answers(msgspec.json.encode([HI, empty, HI]))) == [HI, HI]
    told = msgspec.json.decode(without_empty_answers(msgspec.json.encode([HI, {**SAID, **no_calls}])))
    assert told == [HI, SAID]
    told = msgspec.json.decode(without_empty_answers(msgspec.json.encode([HI, calls("a", **nothing)])))
    assert told == [HI, calls("a", content="")]


def test_what_is_whole_keeps_its_bytes() -> None:
    whole = b'[{"role": "user", "content": null}, {"role": "assistant", "content": "a"}]'
    assert with_every_result(whole) == without_empty_answers(whole) == whole


@pytest.mark.parametrize(
    "nothing", [{}, {"content": None}, {"content": " "}, {"content": [{"type": "text", "text": ""}]}]
)
def test_a_message_without_anything_is_left_out(nothing: Json) -> None:
    said = [HI, {"role": "user", **nothing}, calls("a", **nothing), {**result("a"), "content": "", **nothing}, SAID]
    told = [HI, calls("a", **nothing), result("a", "(no output)"), SAID]
    assert msgspec.json.decode(without_empty_messages(msgspec.json.encode(said))) == told
    assert without_empty_messages(b'[{"role":"user","content":""}]') == b'[{"role":"user","content":""}]'
    odd = b'[{"role":"user","content":""},{"role":"user","content":[7]}]'
    assert without_empty_messages(odd) == odd


def test_z_ai_says_by_a_number_that_it_takes_no_such_messages() -> None:
    for code in ("1213", "1214"):
        assert (
            mend_for(b'{"error":{"code":"%b","message":"The messages parameter is illegal."}}' % code.encode())
            is in_order
        )
    messages = [{"role": "system", "content": "Be brief."}, calls("a"), result("a"), result("b", " "), SAID]
    [_, opened, *told] = msgspec.json.decode(in_order(msgspec.json.encode(messages)))
    assert opened["role"] == "user"
    assert told == [calls("a"), result("a"), {"role": "user", "content": "(no output)"}, SAID]


@pytest.mark.parametrize("content", ["[7]", '[{"type":"text","text":"\\ud800"}]', "7", '"a"', '[{"type":"text"}]'])
def test_what_says_something_or_cannot_be_read_is_left_to_its_provider(content: str) -> None:
    messages = f'[{{"role": "user", "content": {content}}}]'.encode()
    assert without_empty_texts(messages) == messages


WORDS = [
    ("An assistant message with 'tool_calls' must be followed by tool messages responding to each", with_every_result),
    ("(insufficient tool messages following tool_calls message)", with_every_result),
    ("Messages with role 'tool' must be a response to a preceding message with 'tool_calls'", with_every_result),
    ("Not the same number of function calls and responses", with_every_result),
    ("messages.4: `tool_use` ids were found without `tool_result` blocks immediately after: c", with_every_result),
    ("messages.2.content.0: unexpected `tool_use_id` found in `tool_result` blocks: c", with_every_result),
    ("Please ensure that the number of function response parts is equal to the number of function", with_every_result),
    ("invalid params, tool result's tool id(call_function_g094w5htkglv_1) not found (2013)", with_every_result),
    ("invalid params, tool call and result not match (2013)", with_every_result),
    ("tool call result does not follow tool call (2013)", with_every_result),
    ("invalid params, chat content is empty (2013)", without_empty_messages),
    ("invalid params, messages must not be empty (2013)", without_empty_messages),
    ("invalid message content type: <nil>", without_empty_answers),
    ("Assistant message must contain either 'content' or 'tool_calls'!", without_empty_answers),
    ("Invalid request: the message at position 3 with role 'assistant' must not be empty", without_empty_answers),
    ("Invalid 'messages[169].tool_calls': empty array.", without_empty_answers),
]


@pytest.mark.parametrize(("words", "mend"), WORDS)
def test_providers_words(words: str, mend: object) -> None:
    assert mend_for(msgspec.json.encode({"error": {"message": words}})) is mend


def item(kind: str, call_id: str) -> Json:
    beside: Json = {"output": "7"} if kind.endswith("_output") else {"name": "f"}
    return {"type": kind, "call_id": call_id, **beside}


def no_output(kind: str, call_id: str) -> Json:
    return {"type": f"{kind}_output", "call_id": call_id, "output": "Interrupted: this call has no result."}


CALL, RESULT, CUSTOM = "function_call", "function_call_output", "custom_tool_call"
SAID_7: Json = {"role": "user", "content": "7"}


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ([HI, item(CALL, "a"), HI], [HI, item(CALL, "a"), no_output(CALL, "a"), HI]),
        (
            [item(CALL, "a"), item(CUSTOM, "b")],
            [item(CALL, "a"), item(CUSTOM, "b"), no_output(CALL, "a"), no_output(CUSTOM, "b")],
        ),
        ([HI, item(RESULT, "a"), SAID], [HI, SAID_7, SAID]),
    ],
)
def test_each_call_of_a_response_gets_a_result(items: list[Json], expected: list[Json]) -> None:
    assert msgspec.json.decode(with_every_output(msgspec.json.encode(items), is_whole=True)) == expected


@pytest.mark.parametrize(
    ("items", "is_whole"),
    [
        ([HI, item(CALL, "a"), item(CALL, "b"), SAID, item(RESULT, "b"), item(RESULT, "a")], True),
        ([item(CUSTOM, "a"), item(f"{CUSTOM}_output", "a"), item("computer_call", "b")], True),
        ([item(RESULT, "a")], False),
        ("hi", True),
    ],
)
def test_a_response_with_all_results_keeps_its_bytes(items: object, is_whole: bool) -> None:
    whole = msgspec.json.encode(items)
    assert with_every_output(whole, is_whole=is_whole) is whole
