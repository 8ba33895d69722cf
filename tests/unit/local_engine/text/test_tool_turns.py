"""Conversations with calls and results, adapted to templates without support for them."""

import time
from typing import Any

from local_engine.text.tool_turns import one_call_each, with_results_told

MANY = 20_000


def _call(one: Any) -> dict[str, Any]:
    return {"id": one, "function": {"name": "f", "arguments": {}}}


def _result(one: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": one, "content": "x"}


def test_each_call_stands_before_its_results_and_what_belongs_to_none_behind_them() -> None:
    calling = {"role": "assistant", "content": "I look.", "tool_calls": [_call("a"), _call(["b"])]}
    user, lone = {"role": "user", "content": "?"}, {"role": "assistant", "tool_calls": [_call("e")]}
    results = [_result("c"), _result(["b"]), _result("a"), _result("d"), _result("a")]
    assert one_call_each([_result("z"), user, calling, *results, lone, _result("e")]) == [
        _result("z"),
        user,
        {"role": "assistant", "content": "I look.", "tool_calls": [_call("a")]},
        _result("a"),
        _result("a"),
        {"role": "assistant", "content": None, "tool_calls": [_call(["b"])]},
        _result(["b"]),
        _result("c"),
        _result("d"),
        lone,
        _result("e"),
    ]


def test_results_and_what_the_user_says_behind_them_are_one_turn() -> None:
    user, said = {"role": "user", "content": "?", "name": "n"}, {"role": "assistant", "content": "!"}
    told = "<tool_response>\nx\n</tool_response>"
    assert with_results_told([user, _result("a"), _result("b"), user, said, _result("c")]) == [
        user,
        {"role": "user", "content": f"{told}\n{told}\n?"},
        said,
        {"role": "user", "content": told},
    ]


def test_many_calls_and_results_are_gone_through_once() -> None:
    """20,000 results took 4 s, and separating 4,000 calls 1.2 s, in quadratic time."""
    calls, results = [_call(f"c{one}") for one in range(MANY)], [_result(f"c{one}") for one in range(MANY)]
    start = time.process_time()
    assert len(with_results_told(results)) == 1
    assert len(one_call_each([{"role": "assistant", "tool_calls": calls}, *results])) == 2 * MANY
    assert time.process_time() - start < 1.5
