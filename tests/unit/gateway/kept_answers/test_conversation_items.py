"""Items of a conversation: each has a unique id, and is shown as in OpenAI's API."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.endpoints.responses_format import chat_body_from_responses
from backends.formats.json_objects import Fields
from gateway.errors import InvalidRequest
from gateway.kept_answers.conversation_items import (
    MOST_LEVELS,
    Item,
    join_items,
    parse_items,
    placed_items,
    require_calls,
    shown,
    split_items,
)
from tests.unit.gateway.kept_answers.nested_json import nested

USER: Fields = {"role": "user", "content": "hi"}
TEXT = {"type": "input_text", "text": "hi"}
SAID = {"type": "output_text", "text": "hi", "annotations": [], "logprobs": []}
VALUES = st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda one: st.lists(one, max_size=3))


def parsed(*items: object, known: tuple[str, ...] = ()) -> list[Item]:
    return parse_items(json.dumps(items).encode(), known)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (USER, {"type": "message", "role": "user", "content": [TEXT], "status": "completed"}),
        ({**USER, "status": "incomplete"}, {"type": "message", **USER, "content": [TEXT], "status": "incomplete"}),
        (
            {"role": "assistant", "content": "hi"},
            {"type": "message", "role": "assistant", "content": [SAID], "status": "completed"},
        ),
        ({"type": "message", "role": "system", "content": [TEXT]}, {"content": [TEXT], "status": "completed"}),
        ({"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}, {"status": "completed"}),
        ({"type": "function_call_output", "call_id": "c", "output": "x"}, {"output": "x", "status": "completed"}),
        ({"type": "of a version to come", "a": 1}, {"type": "of a version to come", "a": 1}),
    ],
)
def test_what_clients_read(given: Fields, expected: Fields) -> None:
    [item] = parsed(given)
    told = shown(item)
    assert expected.items() <= told.items()
    assert told["id"] == item.id
    assert item.given == json.dumps(given).encode(), "a model is told what was said"


def test_an_item_keeps_its_own_name_unless_another_has_it() -> None:
    first, second, third, fourth = parsed(
        {**USER, "id": "a"}, {**USER, "id": "a"}, {**USER, "id": "b"}, {**USER, "id": "no name\n"}, known=("b",)
    )
    assert first.id == "a"
    assert len({first.id, second.id, third.id, fourth.id, "b"}) == 5
    assert all(one.id.startswith("msg_") for one in (second, third, fourth))
    assert shown(second)["id"] == second.id


@pytest.mark.parametrize(
    ("item", "says"),
    [
        (1, r"items\[0\]: must be an object"),
        ({}, r"items\[0\]\.type"),
        ({"type": 1}, r"items\[0\]\.type"),
        ({"type": "message", "content": "x"}, r"items\[0\]\.role"),
        ({"role": "user", "content": 1}, r"items\[0\]\.content"),
        ({"type": "x", "v": nested(MOST_LEVELS)}, r"items\[0\]: has more than 100 levels of lists and objects"),
        ({"type": "item_reference", "id": "x"}, r"items\[0\]: no item with that id"),
    ],
)
def test_what_is_no_item_is_named(item: object, says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        parsed(item)


def test_what_is_wide_is_not_deep() -> None:
    [item] = parsed({"type": "x", "v": [nested(MOST_LEVELS - 2)] * MOST_LEVELS})
    assert shown(item)["type"] == "x"


@given(st.lists(st.dictionaries(st.text(max_size=5), VALUES, max_size=4), max_size=5))
def test_split_and_joined_they_are_what_they_were(items: list[Fields]) -> None:
    given_ = json.dumps(items, ensure_ascii=False).encode("utf-8", "surrogatepass")
    assert json.loads(join_items(split_items(given_))) == items


def test_what_clients_read_can_be_sent_back_to_any_model() -> None:
    """The Agents SDK does so with a session's items."""
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c", "output": "sunny"}
    items = parsed(USER, call, output, {"role": "assistant", "content": "It is sunny."})
    body = {"model": "m", "input": [shown(one) for one in items]}
    chat = json.loads(chat_body_from_responses(json.dumps(body).encode()))
    assert [one["role"] for one in chat["messages"]] == ["user", "assistant", "tool", "assistant"]


def test_items_without_an_id_of_their_own_are_named_by_their_places() -> None:
    items = [{"id": None, "role": "user", "content": "a"}, *[{"id": "x", "role": "user", "content": "b"}] * 2, {}]
    placed = placed_items(json.dumps(items).encode())
    assert [one.id for one in placed] == ["item_0", "x", "item_2", "item_3"]
    assert placed == placed_items(json.dumps(items).encode())


CALL: Fields = {"type": "function_call", "call_id": "c", "id": "fc", "name": "f", "arguments": "{}"}
RESULT: Fields = {"type": "function_call_output", "call_id": "c", "output": "x"}
CUSTOM: Fields = {"type": "custom_tool_call_output", "call_id": "c", "output": "x"}


@pytest.mark.parametrize(
    ("before", "items"),
    [
        ([CALL], [RESULT]),
        ([{**CALL, "type": "custom_tool_call"}], [USER, CUSTOM]),
        ([USER], [CALL, RESULT]),  # LiveKit's agents send the call again
        ([], [USER]),
        ([], [{**RESULT, "type": "computer_call_output"}]),  # of a provider's own tool
        ([{"type": "compaction", "encrypted_content": "x"}], [RESULT]),
        ([], [{"type": "item_reference", "id": "fc"}, RESULT]),
        ([], [{**RESULT, "call_id": 7}]),  # what the next reader refuses
        ([], [RESULT, 7]),
    ],
)
def test_a_result_has_its_call_or_one_that_cannot_be_seen(before: list[object], items: list[object]) -> None:
    require_calls([json.dumps(before).encode()], json.dumps(items).encode())


@pytest.mark.parametrize(("wrong", "named"), [(RESULT, "function call output"), (CUSTOM, "custom tool call output")])
@pytest.mark.parametrize("before", [[], [USER, RESULT], [{**CALL, "call_id": "d", "id": "c"}]])
def test_a_result_without_its_call_is_refused(wrong: Fields, named: str, before: list[object]) -> None:
    with pytest.raises(InvalidRequest, match=f"No tool call found for {named} with call_id c") as refused:
        require_calls([json.dumps(before).encode(), b"[]"], json.dumps([USER, wrong]).encode())
    assert refused.value.param == "input"
