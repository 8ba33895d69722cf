"""Tool call ids for providers that do not accept every form of them."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from backends.formats.call_ids import CallId, for_anthropic, for_mistral, for_openai, with_call_ids, with_distinct_ids

KIMI, VLLM, OPENAI, MISTRAL = "functions.weather:0", "chatcmpl-tool-" + "0a" * 16, "call_" + "aB3" * 8, "aB3dE6gH9"
TAKEN = [
    (for_anthropic, r"[a-zA-Z0-9_-]+", {VLLM, OPENAI, MISTRAL}),
    (for_openai, r".{1,40}", {KIMI, OPENAI, MISTRAL}),
    (for_mistral, r"[a-zA-Z0-9]{9}", {MISTRAL}),
]


@pytest.mark.parametrize(("told", "form", "kept"), TAKEN)
def test_an_id_is_kept_where_it_is_taken_and_replaced_by_one_that_is(told: CallId, form: str, kept: set[str]) -> None:
    ids = [KIMI, VLLM, OPENAI, MISTRAL]
    said = [told(call_id) for call_id in ids]
    assert {call_id for call_id, new in zip(ids, said, strict=True) if call_id == new} == kept
    assert all(re.fullmatch(form, call_id) for call_id in said)
    assert len(set(said)) == len(ids)
    assert said == [told(call_id) for call_id in ids], "the same in every turn"


def chat(call_id: str) -> bytes:
    call = {"id": call_id, "type": "function", "function": {"name": "f", "arguments": "{}"}}
    return json.dumps(
        [
            {"role": "user", "content": [{"type": "text", "text": f'"tool_call_id": "{KIMI}"'}]},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call_id, "content": "ok"},
        ]
    ).encode()


def conversation(call_id: str) -> bytes:
    said = {"type": "tool_use", "id": call_id, "name": "f", "input": {"id": call_id}}
    result = {"type": "tool_result", "tool_use_id": call_id, "content": "ok"}
    return json.dumps(
        [
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": [said]},
            {"role": "user", "content": [result]},
        ]
    ).encode()


def test_a_chats_call_and_result_keep_one_id_and_everything_else_stays() -> None:
    said = with_call_ids(chat(KIMI), for_mistral)
    assert json.loads(said) == json.loads(chat(for_mistral(KIMI)))


def test_a_call_of_anthropics_and_its_result_keep_one_id_and_its_input_stays() -> None:
    expected = json.loads(conversation(for_anthropic(KIMI)))
    expected[1]["content"][0]["input"] = {"id": KIMI}
    assert json.loads(with_call_ids(conversation(KIMI), for_anthropic)) == expected


@pytest.mark.parametrize(
    "messages",
    [
        chat(OPENAI),
        conversation(OPENAI),
        b'[{"role": "user", "content": "no calls"}]',
        b'{"tool_call_id": "a:b"}',
        b'[{"tool_call_id": "a:b", "tool_calls": 7',
        b'[ 7, "tool_call_id", {"tool_call_id": "a:b"} ]',
    ],
)
def test_what_is_taken_as_it_came_or_is_no_list_of_messages_keeps_its_bytes(messages: bytes) -> None:
    assert with_call_ids(messages, for_anthropic) == messages


def test_what_has_no_id_of_text_stays_as_it_is() -> None:
    odd = (
        b'[{"role":"tool","tool_call_id":"a:b"},{"tool_calls":[7,{"function":{},"id":null}],"content":[{"id":"a:b"}]}]'
    )
    said = json.loads(with_call_ids(odd, for_anthropic))
    assert said[0]["tool_call_id"] == for_anthropic("a:b")
    assert said[1] == json.loads(odd)[1]


def ids_in(messages: list[Any]) -> list[str]:
    """Of calls and results, in their order."""
    found: list[str] = []
    for message in messages:
        content = message.get("content")
        blocks = content if isinstance(content, list) else []
        for one in (*message.get("tool_calls", ()), message, *blocks):
            found += [one[name] for name in ("id", "tool_call_id", "tool_use_id") if name in one]
    return found


@pytest.mark.parametrize("turn", [chat, conversation])
def test_calls_of_one_id_get_their_own_and_each_result_its_calls(turn: Callable[[str], bytes]) -> None:
    """Some servers number their calls anew in each turn."""
    one, other = json.loads(turn("call_0")), json.loads(turn("call_1"))
    messages = [*one, *one[:2], *other, *one]
    made = json.loads(with_distinct_ids(json.dumps(messages).encode()))
    first, answered, stopped, *others, third, last = ids_in(made)
    assert (first, answered, others) == ("call_0", "call_0", ["call_1", "call_1"])
    assert third == last
    assert len({first, stopped, third}) == 3
    assert all(for_openai(one) == for_anthropic(one) == one for one in (stopped, third))
    plain = json.dumps([*one, *other], indent=1).encode()
    assert with_distinct_ids(plain) is plain
    assert with_distinct_ids(b"7") == b"7"


def test_two_calls_of_one_id_in_one_message_have_a_result_each() -> None:
    call = {"id": "f", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    said = [{"role": "assistant", "tool_calls": [call, call]}, *[{"role": "tool", "tool_call_id": "f"}] * 2]
    first, second, *results = ids_in(json.loads(with_distinct_ids(json.dumps(said).encode())))
    assert (first != second, results) == (True, [first, second])
