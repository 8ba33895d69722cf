"""Numbers out of range are reported in OpenAI's format."""

import json

import pytest

from backends.protocol import Operation
from gateway.errors import InvalidRequest
from gateway.request.field_checks import whole_number
from gateway.request.view import parse_request

BODIES: dict[Operation, dict[str, object]] = {
    "chat.completions": {"messages": [{"role": "user", "content": "hi"}]},
    "responses": {"input": "hi"},
    "messages": {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 9},
}


@pytest.mark.parametrize(
    ("operation", "field", "value", "code"),
    [
        ("chat.completions", "max_tokens", 0, "integer_below_min_value"),
        ("chat.completions", "max_completion_tokens", -1, "integer_below_min_value"),
        ("chat.completions", "max_tokens", 10_000_001, "integer_above_max_value"),
        ("chat.completions", "n", 0, "integer_below_min_value"),
        ("chat.completions", "n", 129, "integer_above_max_value"),
        ("responses", "max_output_tokens", 0, "integer_below_min_value"),
        ("messages", "max_tokens", -1, "integer_below_min_value"),
    ],
)
def test_a_number_out_of_range_is_refused_by_its_name(operation: Operation, field: str, value: int, code: str) -> None:
    body = {"model": "m", **BODIES[operation], field: value}
    with pytest.raises(InvalidRequest, match=f"^{field}: must be from ") as caught:
        parse_request(operation, json.dumps(body).encode())
    assert (caught.value.param, caught.value.code) == (field, code)


@pytest.mark.parametrize(
    ("text", "number"), [("7", 7), ("9" * 9, 999_999_999), ("9" * 5_000, None), ("²", None), ("-1", None), ("", None)]
)
def test_a_text_is_a_whole_number_of_few_digits_or_none(text: str, number: int | None) -> None:
    assert whole_number(text) == number
