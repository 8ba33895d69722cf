"""What a call of Qwen3-Coder may contain between its tags."""

import json
from typing import Any

import pytest

from local_engine.sampling.tool_grammar import strict_calls
from local_engine.text.tool_calls import parse_function
from tests.unit.local_engine.sampling.written_calls import takes, writing_of

PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "code": {"type": "string"},
        "lines": {"type": "array", "items": {"$ref": "#/$defs/Line"}},
        "mode": {"anyOf": [{"$ref": "#/$defs/Mode"}, {"type": "null"}]},
        "note": {"type": ["string", "null"]},
    },
    "required": ["code", "lines", "mode"],
    "additionalProperties": False,
    "$defs": {"Line": {"type": "integer"}, "Mode": {"enum": ["add", "drop"]}},
}
LINES, MODE = ("lines", "[1, 2]"), ("mode", "add")


def written(*arguments: tuple[str, str]) -> str:
    """A call of `f` with these arguments."""
    tags = "".join(f"<parameter={name}>\n{value}\n</parameter>\n" for name, value in arguments)
    return f"<tool_call>\n<function=f>\n{tags}</function>\n</tool_call>"


@pytest.mark.parametrize(
    ("arguments", "is_taken"),
    [
        ([("code", 'if a < b:\n\treturn "<b>"\n'), LINES, MODE], True),
        ([("code", ""), ("lines", "[]"), ("mode", "null"), ("note", "</p>")], True),
        ([("code", "x"), ("lines", '["1"]'), MODE], False),
        ([("code", "x"), LINES, ("mode", "move")], False),
        ([("code", "x"), LINES], False),
        ([("code", "a</parameter>b"), LINES, MODE], False),
        ([("code", "x"), LINES, MODE, ("more", "x")], False),
    ],
)
def test_a_strict_tool_is_held_to_its_schema_in_its_familys_tags(
    arguments: list[tuple[str, str]], *, is_taken: bool
) -> None:
    """It used to be constrained to JSON, on which the model was not trained: code in JSON is escaped."""
    tool = {"type": "function", "function": {"name": "f", "parameters": PARAMETERS, "strict": True}}
    constraint = strict_calls([tool], writing_of("qwen3-coder"))
    assert constraint is not None
    assert takes("qwen3-coder", constraint, f"I look.\n{written(*arguments)}") is is_taken


def test_texts_that_are_listed_elsewhere_are_the_only_ones() -> None:
    """Pydantic writes an enumeration with a default as an allOf of one reference: any text was taken."""
    mode = {"allOf": [{"$ref": "#/$defs/Mode"}], "default": "add"}
    parameters = {"type": "object", "properties": {"mode": mode}, "$defs": PARAMETERS["$defs"], "required": ["mode"]}
    tool = {"type": "function", "function": {"name": "f", "parameters": parameters, "strict": True}}
    constraint = strict_calls([tool], writing_of("qwen3-coder"))
    assert constraint is not None
    assert takes("qwen3-coder", constraint, written(MODE))
    assert not takes("qwen3-coder", constraint, written(("mode", "move")))


@pytest.mark.parametrize(
    "parameters",
    [
        {"$ref": "#/definitions/Line", "definitions": {"Line": PARAMETERS}, "$defs": PARAMETERS["$defs"]},
        {"allOf": [PARAMETERS, {"properties": {"more": {"type": "integer"}}}], "$defs": PARAMETERS["$defs"]},
        PARAMETERS | {"allOf": [{"$ref": "#"}]},
    ],
)
def test_a_strict_tool_is_held_to_the_schema_that_its_own_refers_to(parameters: dict[str, Any]) -> None:
    """zod writes a named type as a reference: such a tool took any arguments, and none had a type."""
    tool = {"type": "function", "function": {"name": "f", "parameters": parameters, "strict": True}}
    constraint = strict_calls([tool], writing_of("qwen3-coder"))
    assert constraint is not None
    assert takes("qwen3-coder", constraint, written(("code", "x"), LINES, MODE))
    assert not takes("qwen3-coder", constraint, written(("code", "x"), ("lines", '["1"]'), MODE))
    assert not takes("qwen3-coder", constraint, written(("code", "x"), LINES))
    call = parse_function(written(LINES, MODE).removeprefix("<tool_call>\n"), {"f": parameters})
    assert call is not None
    assert json.loads(call.arguments) == {"lines": [1, 2], "mode": "add"}


def test_a_tool_that_says_nothing_of_its_arguments_takes_any() -> None:
    tools = [
        {"type": "function", "function": {"name": name, "parameters": parameters, "strict": name == "g"}}
        for name, parameters in (("f", PARAMETERS), ("g", {"type": "object", "properties": {}}))
    ]
    constraint = strict_calls(tools, writing_of("qwen3-coder"))
    assert constraint is not None
    for call in (written(("anything", "at all"), ("more", "1")), written()):
        assert takes("qwen3-coder", constraint, call)
        assert takes("qwen3-coder", constraint, call.replace("=f>", "=g>"))
        assert not takes("qwen3-coder", constraint, call.replace("=f>", "=h>"))
