"""JSON schemas reduced to the subset that Anthropic and OpenAI's `strict` accept."""

import json
from typing import cast

import pytest

from backends.formats.schema_subset import OpenObject, as_one_object, for_anthropic, for_openai, is_strict

Json = dict[str, object]
CLOSED: Json = {"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": False}
SAID: list[tuple[Json, Json]] = [
    ({"type": "string"}, {"type": "string"}),
    ({"type": "object", "properties": {"a": {"type": "integer"}}}, CLOSED),
    (CLOSED | {"additionalProperties": True, "$schema": "x"}, CLOSED),
    (
        {"type": "integer", "description": "d", "minimum": 0, "maximum": 5},
        {"type": "integer", "description": "d\n\n{minimum: 0, maximum: 5}"},
    ),
    ({"type": "string", "pattern": "^a"}, {"type": "string", "description": '{pattern: "^a"}'}),
    ({"type": "string", "format": "int64"}, {"type": "string", "description": '{format: "int64"}'}),
    ({"type": "string", "format": "date"}, {"type": "string", "format": "date"}),
    ({"type": "string", "format": ["date"]}, {"type": "string", "description": '{format: ["date"]}'}),
    ({"type": "array", "items": CLOSED, "minItems": 1}, {"type": "array", "items": CLOSED, "minItems": 1}),
    ({"type": "array", "minItems": 2}, {"type": "array", "description": "{minItems: 2}"}),
    ({"enum": ["a", None], "default": "a"}, {"enum": ["a", None], "default": "a"}),
    ({"enum": [{"a": 1}]}, {"description": '{enum: [{"a":1}]}'}),
    ({"oneOf": [{"type": "null"}, {"const": 1}]}, {"anyOf": [{"type": "null"}, {"const": 1}]}),
    (
        {"type": ["object", "null"], "properties": {"a": {"minimum": 1}, "b": True}},
        {
            "type": ["object", "null"],
            "properties": {"a": {"description": "{minimum: 1}"}, "b": True},
            "additionalProperties": False,
        },
    ),
    ({"type": "object", "anyOf": [CLOSED]}, {"type": "object", "anyOf": [CLOSED]}),
    (
        {"$ref": "#/$defs/A", "$defs": {"A": {"properties": {"a": {"type": "integer"}}, "type": "object"}}},
        {"$ref": "#/$defs/A", "$defs": {"A": CLOSED}},
    ),
]


@pytest.mark.parametrize(("schema", "said"), SAID)
def test_what_anthropic_refuses_is_closed_renamed_or_described(schema: Json, said: Json) -> None:
    came = json.dumps(schema)
    assert for_anthropic(schema, is_root=False) == said
    assert json.dumps(schema) == came, "what the caller sent stays for whoever is asked next"


@pytest.mark.parametrize("schema", [{"type": "object"}, {"type": "object", "additionalProperties": {"type": "string"}}])
def test_an_object_of_any_members_cannot_be_closed(schema: Json) -> None:
    with pytest.raises(OpenObject):
        for_anthropic({"type": "object", "properties": {"a": schema}})
    with pytest.raises(OpenObject):
        for_anthropic(schema, is_root=False)


def test_a_tool_may_have_no_parameters() -> None:
    closed = {"type": "object", "properties": {}, "additionalProperties": False}
    assert for_anthropic({"type": "object", "properties": {}}) == closed
    with pytest.raises(OpenObject):
        for_anthropic({"type": "object", "additionalProperties": True})


ADD: Json = {
    "type": "object",
    "properties": {"action": {"const": "add"}, "id": {"type": "integer"}, "text": {"type": "string"}},
    "required": ["action", "id", "text"],
}
DROP: Json = {
    "type": "object",
    "properties": {"action": {"const": "drop"}, "id": {"type": "integer"}},
    "required": ["action", "id"],
}
TOGETHER = "The members in one of these pairs of brackets belong together: (action, id, text) or (action, id)."
EITHER: Json = {
    "type": "object",
    "description": TOGETHER,
    "properties": {
        "action": {"anyOf": [{"const": "add"}, {"const": "drop"}]},
        "id": {"type": "integer"},
        "text": {"type": "string"},
    },
    "required": ["action", "id"],
}
DEFINED: Json = {"$defs": {"Add": ADD, "Drop": DROP}}
REFERRED: list[Json] = [{"$ref": "#/$defs/Add"}, {"$ref": "#/$defs/Drop"}, {"$ref": "#/$defs/Add"}]


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"oneOf": [ADD, DROP]}, EITHER),
        ({"type": "object", "anyOf": REFERRED} | DEFINED, EITHER | DEFINED),
        ({"$ref": "#/$defs/Any", "$defs": {"Any": {"anyOf": [ADD, DROP]}}}, None),
        (
            {"allOf": [DROP, CLOSED], "description": "d", "required": ["a"]},
            {
                "type": "object",
                "description": "d",
                "properties": cast(Json, DROP["properties"]) | {"a": {"type": "integer"}},
                "required": ["action", "id", "a"],
            },
        ),
        ({"anyOf": [], "properties": {"a": {}}}, {"type": "object", "properties": {"a": {}}}),
        ({"$ref": "#/$defs/Add"} | DEFINED, ADD | DEFINED),
        ({"$ref": "https://x/y"}, {"$ref": "https://x/y", "type": "object"}),
        ({}, {"type": "object"}),
        (CLOSED, CLOSED),
        (EITHER, EITHER),
    ],
)
def test_anthropic_takes_no_alternatives_at_the_root_of_parameters(parameters: Json, said: Json | None) -> None:
    came = json.dumps(parameters)
    made = as_one_object(parameters)
    assert json.dumps(parameters) == came, "what the caller sent stays for whoever is asked next"
    assert {name: one for name, one in made.items() if said or name != "$defs"} == (EITHER if said is None else said)


LIST: Json = {"type": "array"}
ANY: Json = LIST | {"items": {}}


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"type": "object"}, {"type": "object", "properties": {}}),
        (CLOSED, CLOSED),
        ({}, {}),
        ({"properties": {"type": LIST, "b": True}}, {"properties": {"type": ANY, "b": True}}),
        ({"$defs": {"A": LIST}, "anyOf": [LIST, True]}, {"$defs": {"A": ANY}, "anyOf": [ANY, True]}),
        (LIST | {"items": LIST}, LIST | {"items": ANY}),
        ({"items": False, "additionalProperties": LIST}, {"items": False, "additionalProperties": ANY}),
        ({"type": ["array", "null"], "default": LIST}, {"type": ["array", "null"], "default": LIST, "items": {}}),
    ],
)
def test_a_functions_parameters_say_what_openai_wants_said(schema: Json, said: Json) -> None:
    came = json.dumps(schema)
    assert for_openai(schema) == said
    assert json.dumps(schema) == came


def test_parameters_nested_too_deeply_are_left_alone() -> None:
    deep: Json = {}
    for _ in range(1_000):
        deep = {"items": deep}
    assert for_openai(deep) is deep


STRICT = CLOSED | {"required": ["a"]}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (None, True),
        ({"type": "string"}, True),
        (STRICT, True),
        (CLOSED, False),
        ({"type": "object", "properties": {"a": {}}, "required": ["a"]}, False),
        ({"type": "object"}, False),
        ({"type": "array", "items": CLOSED}, False),
        ({"anyOf": [STRICT, {"type": "null"}]}, True),
        ({"anyOf": [STRICT, CLOSED]}, False),
        ({"$ref": "#/$defs/A", "$defs": {"A": CLOSED}}, False),
        (STRICT | {"properties": {"a": CLOSED}}, False),
    ],
)
def test_strict_is_what_is_closed_and_complete(schema: Json | None, expected: bool) -> None:
    assert is_strict(schema) is expected
