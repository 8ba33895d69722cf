import json
import urllib.request
from collections.abc import Mapping
from typing import Any

import pytest

from gateway.request.answer_checks import objection
from gateway.request.schema_check import MOST_STEPS, allowance, fits
from gateway.routing.rules import Verify

NEXT = {"properties": {"next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}}
DRAFT_7 = "http://json-schema.org/draft-07/schema#"
NEVER_ENDS = {"pattern": "(a+)+$"}
TORTURED = "a" * 64 + "b"


@pytest.mark.parametrize(
    ("value", "schema", "expected"),
    [
        (1, True, True),
        (1, False, False),
        (1, {}, True),
        (True, {"type": "integer"}, False),
        (2.0, {"type": "integer"}, True),
        ("a", {"enum": ["a", "b"]}, True),
        (1, {"enum": [True]}, False),
        (3, {"const": 3}, True),
        (3, {"minimum": 4}, False),
        ("abc", {"maxLength": 2}, False),
        ([1], {"minItems": 2}, False),
        ([1, "a"], {"items": {"type": "integer"}}, False),
        ([1, "a"], {"prefixItems": [{"type": "integer"}, {"type": "integer"}]}, False),
        ({"a": 1}, {"allOf": [{"required": ["a"]}, {"required": ["b"]}]}, False),
        ({"a": 1}, {"dependentRequired": {"a": ["b"]}}, False),
        ({"ab": 1}, {"propertyNames": {"maxLength": 1}}, False),
        ({"a": 1, "b": 2}, {"properties": {"a": {}}, "additionalProperties": False}, False),
        ("x", {"anyOf": [{"type": "integer"}, {"type": "string"}]}, True),
        (None, {"anyOf": [{"type": "integer"}, {"type": "string"}]}, False),
        (None, {"oneOf": [{"type": "integer"}, {"type": "string"}]}, False),
        ({"next": {"next": None}}, NEXT, True),
        ({"next": {"next": 1}}, {**NEXT, "type": "object"}, False),
        ({"a": 1}, {"$ref": "#/$defs/a", "$defs": {"a": {"required": ["b"]}}}, False),
        ({"a": 1}, {"$id": "https://elsewhere", "$ref": "#/$defs/a", "$defs": {"a": {"required": ["b"]}}}, False),
        ({"a": 1}, {"$schema": DRAFT_7, "required": ["b"]}, False),
    ],
)
def test_what_a_schema_asks(value: Any, schema: Any, expected: bool) -> None:
    assert fits(value, schema) is expected


@pytest.mark.parametrize(
    ("value", "schema"),
    [
        ("a", {"pattern": "b"}),
        ("a", {"not": {"pattern": "b"}}),
        (3, {"oneOf": [{"type": "integer"}, {"multipleOf": 3}]}),
        ("a", {"if": {"pattern": "b"}, "then": {"maxLength": 9}, "else": {"maxLength": 0}}),
        ([1, 1], {"uniqueItems": True}),
        ({"a": 1}, {"patternProperties": {"a": {}}, "additionalProperties": False}),
        ({"a": 1}, {"unevaluatedProperties": False}),
    ],
)
def test_what_is_not_looked_at_refuses_nothing(value: Any, schema: Any) -> None:
    assert fits(value, schema)


@pytest.mark.parametrize(
    ("value", "schema"),
    [
        (1, None),
        (1, 3),
        (1, {"type": "banana"}),
        ({}, {"properties": 3}),
        ({"a": 1}, {"properties": {"a": [1]}}),
        (1, {"multipleOf": 0}),
        (1, {"$ref": "#/$defs/gone"}),
        (1, {"$ref": "#name"}),
        (1, {"$ref": 3}),
    ],
)
def test_what_is_no_schema_asks_nothing(value: Any, schema: Any) -> None:
    assert fits(value, schema)


def _twice_each(levels: int) -> dict[str, Any]:
    """A schema with 2 ** levels paths through it."""
    both = {f"d{level}": {"allOf": [{"$ref": f"#/$defs/d{level + 1}"}] * 2} for level in range(levels)}
    return {"$ref": "#/$defs/d0", "$defs": {**both, f"d{levels}": {"type": "integer"}}}


def _nested(levels: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for _ in range(levels):
        found = {"a": found}
    return found


ROWS = [list(range(5000))] * 100
HOSTILE: Mapping[str, tuple[Any, Any]] = {
    "only itself": (1, {"$ref": "#"}),
    "itself twice": (1, {"anyOf": [{"$ref": "#"}, {"$ref": "#"}], "type": "string"}),
    "itself forty times": (_nested(50), {"properties": {"a": {"anyOf": [{"$ref": "#"}] * 40}}, "required": ["a"]}),
    "a way through for every grain of sand": (1, _twice_each(64)),
    "a long list, a thousand times": (list(range(100_000)), {"allOf": [{"items": {}}] * 1000}),
    "a long enumeration for each row": (ROWS, {"items": {"enum": [[*range(4999), -1]] * 100}}),
    "a long text for each error": (ROWS, {"items": {"anyOf": [{"maxItems": 1}] * 1000}}),
    "a regular expression without end": (TORTURED, NEVER_ENDS),
    "one of a property's name": ({TORTURED: 1}, {"patternProperties": {"(a+)+$": {}}, "additionalProperties": False}),
    "one in another draft": (TORTURED, {"allOf": [{"$schema": DRAFT_7, **NEVER_ENDS}]}),
    "one in another draft by reference": (
        TORTURED,
        {"$schema": DRAFT_7, "allOf": [{"$ref": "#/$defs/x"}], "$defs": {"x": {"$schema": DRAFT_7, **NEVER_ENDS}}},
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_schema_ends_as_far_as_seen(name: str) -> None:
    value, schema = HOSTILE[name]
    assert fits(value, schema)


def test_several_values_take_of_one_allowance() -> None:
    steps = allowance()
    assert not fits(1, {"type": "string"}, steps)
    assert fits(*HOSTILE["a long list, a thousand times"], steps)
    assert fits(1, {"type": "string"}, steps), "it was spent on the one before"


def test_many_rows_are_looked_at_to_their_end() -> None:
    row = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    rows: list[dict[str, Any]] = [{"name": "Ada"}] * (MOST_STEPS // 20)
    assert fits(rows, {"items": row})
    assert not fits([*rows, {}], {"items": row})


@pytest.mark.parametrize("schema", [{"$ref": "https://elsewhere/x"}, {"$id": "https://elsewhere/", "$ref": "x"}])
def test_nothing_is_fetched(schema: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(*given: Any, **more: Any) -> None:
        pytest.fail(f"fetched {given} {more}")

    monkeypatch.setattr(urllib.request, "urlopen", fetch)
    assert fits(1, schema)


def test_a_hostile_schema_of_a_request_lets_its_answer_pass() -> None:
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": _twice_each(64)}}
    asked = {"model": "auto", "messages": [], "response_format": form}
    choice = {"index": 0, "message": {"role": "assistant", "content": "1"}, "finish_reason": "stop"}
    assert objection(json.dumps(asked).encode(), json.dumps({"choices": [choice]}).encode(), Verify()) is None
