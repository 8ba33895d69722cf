import json
from typing import Any

import pytest

from gateway.request.answer_checks import is_asked_for_logprobs, objection, without_logprobs
from gateway.routing.rules import Verify

FORM = Verify()
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": ["integer", "null"]}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
JSON_OBJECT = {"response_format": {"type": "json_object"}}
JSON_SCHEMA = {"response_format": {"type": "json_schema", "json_schema": {"name": "p", "schema": SCHEMA}}}
BESIDE = {"response_format": {"type": "json_object", "schema": SCHEMA}}
TOOLS = {"tools": [{"type": "function", "function": {"name": "look_up", "parameters": SCHEMA}}]}
DEMANDED = {**TOOLS, "tool_choice": {"type": "function", "function": {"name": "look_up"}}}
GOOD = '{"name": "Ada", "age": 36}'


def asked(fields: dict[str, Any]) -> bytes:
    return json.dumps({"model": "auto", "messages": [], **fields}).encode()


def answer(content: str | None = "Yes.", finish: str = "stop", **message: Any) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", "content": content, **message}, "finish_reason": finish}
    return json.dumps({"id": "x", "choices": [choice]}).encode()


def call(arguments: str = GOOD, name: str = "look_up") -> bytes:
    calls = [{"id": "c", "type": "function", "function": {"name": name, "arguments": arguments}}]
    return answer(None, "tool_calls", tool_calls=calls)


@pytest.mark.parametrize(
    ("request_fields", "given", "word"),
    [
        ({}, answer(), None),
        ({}, answer("I cannot help with that."), None),
        ({}, answer(""), "empty"),
        ({}, answer(" \n"), "empty"),
        ({}, answer(None), "empty"),
        ({}, answer("Once upon", "length"), "cut"),
        ({}, answer("", "content_filter"), "filtered"),
        ({}, answer("Once upon", "model_length"), "cut"),
        ({}, answer("Once upon", "model_context_window_exceeded"), "cut"),
        ({}, answer("Once upon", "content_filter: PROHIBITED_CONTENT"), "filtered"),
        ({}, answer("Once upon", "sensitive"), "filtered"),
        ({}, b"no json", "unreadable"),
        ({}, b"{}", "unreadable"),
        ({}, b'{"choices": []}', "empty"),
        ({}, b'{"choices": [{}]}', "unreadable"),
        ({}, b'{"choices": "abc"}', "unreadable"),
        (JSON_OBJECT, answer(GOOD), None),
        (JSON_OBJECT, answer(f"Here it is: {GOOD}"), "not_json"),
        (JSON_SCHEMA, answer(GOOD), None),
        (JSON_SCHEMA, answer('{"name": "Ada"}'), "off_schema"),
        (JSON_SCHEMA, answer('{"name": "Ada", "age": 1.5}'), "off_schema"),
        (BESIDE, answer(GOOD), None),
        (BESIDE, answer('{"name": "Ada"}'), "off_schema"),
        (JSON_SCHEMA, answer('{"name": "Ada", "age": null, "more": 1}'), "off_schema"),
        (TOOLS, answer(), None),
        (TOOLS, call(), None),
        (TOOLS, call("{"), "bad_tool_call"),
        (TOOLS, call("[]"), "bad_tool_call"),
        (TOOLS, call('{"name": 1, "age": 2}'), "bad_tool_call"),
        (TOOLS, call(name="other"), "bad_tool_call"),
        ({**TOOLS, "tool_choice": "required"}, answer(), "no_tool_call"),
        (DEMANDED, answer(), "no_tool_call"),
        (DEMANDED, call(), None),
        ({"functions": []}, answer(None, "function_call", function_call={"name": "f", "arguments": "{}"}), None),
    ],
)
def test_form(request_fields: dict[str, Any], given: bytes, word: str | None) -> None:
    assert objection(asked(request_fields), given, FORM) == word


def with_logprobs(*logprobs: float) -> bytes:
    body = json.loads(answer())
    body["choices"][0]["logprobs"] = {"content": [{"token": "x", "logprob": one} for one in logprobs]}
    return json.dumps(body).encode()


@pytest.mark.parametrize(
    ("given", "word"),
    [
        (with_logprobs(-0.1, -0.3), None),
        (with_logprobs(-0.5), None),
        (with_logprobs(-0.1, -1.0), "unsure"),
        (with_logprobs(-(10**400)), "unreadable"),
        (with_logprobs(), "no_logprobs"),
        (answer(), "no_logprobs"),
        (call(), None),
        (answer(""), "empty"),
    ],
)
def test_how_sure_the_model_was(given: bytes, word: str | None) -> None:
    assert objection(asked(TOOLS), given, Verify(min_mean_logprob=-0.5)) == word


def test_without_form_an_answer_may_be_cut() -> None:
    body = json.loads(with_logprobs(-0.1))
    body["choices"][0]["finish_reason"] = "length"
    cut = json.dumps(body).encode()
    assert objection(asked({}), cut, Verify(format=False, min_mean_logprob=-0.5)) is None
    assert objection(asked({}), cut, Verify(min_mean_logprob=-0.5)) == "cut"


def test_every_choice_must_stand() -> None:
    body = json.loads(answer())
    body["choices"].append(json.loads(answer(""))["choices"][0])
    assert objection(asked({"n": 2}), json.dumps(body).encode(), FORM) == "empty"


def test_log_probabilities_nobody_asked_for_go_and_nothing_else_changes() -> None:
    given = with_logprobs(-0.1).replace(b'"id": "x"', b'"id": "x", "odd": 1.0e+2, "s": "\\u00e9"')
    stripped = without_logprobs(given)
    expected = json.loads(given)
    expected["choices"][0]["logprobs"] = None
    assert json.loads(stripped) == expected
    assert b"1.0e+2" in stripped
    assert b'"\\u00e9"' in stripped
    assert without_logprobs(b"no json") == b"no json"


@pytest.mark.parametrize(("fields", "expected"), [({}, False), ({"logprobs": True}, True), ({"logprobs": None}, False)])
def test_whether_the_caller_asked(fields: dict[str, Any], expected: bool) -> None:
    assert is_asked_for_logprobs(asked(fields)) is expected
    endless = b'{"seed": %b, "logprobs" : true}' % (b"1" * 5_000)  # Python reads integers up to 4,300 digits
    assert is_asked_for_logprobs(endless)
