"""The view of a chat for the decision."""

import json
from typing import Any

import pytest

from gateway.request.view import parse_request


@pytest.mark.parametrize(
    ("form", "needs"),
    [
        ({"type": "text"}, ()),
        ({"type": "json_object"}, ()),
        ({"type": "json_object", "schema": None}, ()),
        ({"type": "json_schema", "json_schema": {"schema": {}}}, ("json_schema",)),
        ({"type": "json_object", "schema": {}}, ("json_schema",)),
        ({"type": "json_object", "value": {"type": "object"}}, ("json_schema",)),
        ({"type": "json", "value": {"type": "object"}}, ("json_schema",)),
        ({"type": "regex", "value": "[a-z]"}, ()),
    ],
    ids=str,
)
def test_a_schema_is_needed_wherever_it_stands(form: Any, needs: tuple[str, ...]) -> None:
    body = {"model": "auto", "messages": [{"role": "user", "content": "hi"}], "response_format": form}
    assert parse_request("chat.completions", json.dumps(body).encode()).needs == needs


def test_the_arguments_of_earlier_calls_count() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "write", "arguments": "x" * 40_000}}
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": None, "tool_calls": [call]}]
    body = {"model": "auto", "messages": messages}
    assert 10_000 <= parse_request("chat.completions", json.dumps(body).encode()).input_tokens < 10_100
