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


LONG = "x" * 40_000
CALL = {"id": "c", "type": "function", "function": {"name": "write", "arguments": LONG}}


@pytest.mark.parametrize(
    "fields",
    [
        {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": None, "tool_calls": [CALL]}]},
        {"messages": [{"role": "assistant", "function_call": CALL["function"]}, {"role": "user", "content": "hi"}]},
        {"tools": [{"type": "function", "function": {"name": "f", "description": LONG}}]},
        {"functions": [{"name": "f", "description": LONG}]},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"description": LONG}}}},
        {"response_format": {"type": "json_object", "schema": {"description": LONG}}},
        {"response_format": {"type": "json", "value": {"description": LONG}}},
        {"prediction": {"type": "content", "content": LONG}},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_everything_that_a_model_reads_counts(fields: Any) -> None:
    body = {"model": "auto", "messages": [{"role": "user", "content": "hi"}], **fields}
    assert 10_000 <= parse_request("chat.completions", json.dumps(body).encode()).input_tokens < 10_100
