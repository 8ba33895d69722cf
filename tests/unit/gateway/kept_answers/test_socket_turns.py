"""What a WebSocket remembers of a response with `store: false`."""

import json
from typing import Any

import msgspec
import pytest

from gateway.kept_answers.socket_turns import Asked, SocketTurn, SocketTurns, answered, turn_of

SAID = {"type": "message", "role": "user", "content": "hi"}
TEXT = {"type": "message", "id": "msg_1", "role": "assistant", "content": []}
CALL = {"type": "function_call", "id": "fc_1", "call_id": "1", "name": "f", "arguments": "{}"}
HIDDEN = {"type": "reasoning", "id": "rs_1", "summary": []}
SEALED = HIDDEN | {"encrypted_content": "x"}
OURS = {"type": "reasoning", "id": "rs_resp_1_0", "content": [{"type": "reasoning_text", "text": "hm"}]}


def asked(**fields: Any) -> Asked:
    return msgspec.json.decode(json.dumps(fields), type=Asked)


@pytest.mark.parametrize(
    ("request_", "before", "items", "previous"),
    [
        ({"input": "hi"}, None, [SAID], None),
        ({"input": [SAID], "previous_response_id": "resp_0"}, None, [SAID], "resp_0"),
        ({"input": [SAID], "previous_response_id": "resp_1"}, SocketTurn(b'[{"a":1}]', "resp_0"), None, "resp_0"),
        ({}, None, [], None),
    ],
)
def test_a_turn_has_everything_since_the_response_that_is_stored(
    request_: Any, before: SocketTurn | None, items: Any, previous: str | None
) -> None:
    turn = turn_of(asked(**request_), before)
    assert turn is not None
    assert json.loads(turn.items) == ([{"a": 1}, SAID] if items is None else items)
    assert turn.previous == previous


@pytest.mark.parametrize("request_", [{"input": 7}, {"input": "hi", "conversation": "conv_1"}])
def test_what_is_no_input_or_has_a_memory_of_its_own_makes_no_turn(request_: Any) -> None:
    assert turn_of(asked(**request_), None) is None


@pytest.mark.parametrize(
    ("output", "kept"),
    [
        ([SEALED, TEXT, CALL], [SEALED, TEXT, CALL]),
        ([OURS, TEXT], [OURS, TEXT]),
        ([HIDDEN, TEXT, CALL], [{**TEXT, "id": None}, {**CALL, "id": None}]),
    ],
)
def test_reasoning_that_its_provider_kept_is_left_out_with_the_ids_that_would_miss_it(output: Any, kept: Any) -> None:
    turn = answered(SocketTurn(b"[]", None), json.dumps({"output": output}).encode())
    assert turn is not None
    wanted = [{name: value for name, value in item.items() if value is not None} for item in kept]
    assert json.loads(turn.items) == wanted


@pytest.mark.parametrize("response", [b"{}", b'{"output":null}', b"null"])
def test_an_answer_without_items_cannot_be_continued(response: bytes) -> None:
    assert answered(SocketTurn(b"[]", None), response) is None


def test_a_turn_is_found_over_its_own_socket_only() -> None:
    turns, turn = SocketTurns(max_bytes=1000), SocketTurn(b"[]", None)
    turns.keep("one", "resp_1", turn, owner="red")
    assert turns.find("one", "resp_1") == turn
    assert turns.find("two", "resp_1") is None
    assert turns.find("one", 7) is None
    turns.forget("one", "resp_1")
    assert turns.find("one", "resp_1") is None
