"""Optional tool calls: what an answer may contain beside them, and what the calls may contain."""

import json
from typing import Any

import pytest

from local_engine.sampling.constraints import requested_constraint
from local_engine.sampling.tool_grammar import CallWriting, form_or_calls, strict_calls
from local_engine.text.tool_formats import BARE, NAMED, tool_format_of
from tests.unit.local_engine.sampling.written_calls import takes, writing_of

COUNT = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"], "additionalProperties": False}
STRICT: dict[str, Any] = {"type": "function", "function": {"name": "f", "parameters": COUNT, "strict": True}}
LOOSE = {"type": "function", "function": {"name": "g", "parameters": COUNT}}
TOOLS: list[dict[str, Any]] = [STRICT, LOOSE]
FORM = requested_constraint({"type": "json_schema", "json_schema": {"schema": {"const": {"name": "f"}}}}, None)
NAMES = ("llama", "mistral", "mistral-named", "granite", "qwen3", "deepseek", "gemma")
# Marks that are not single tokens, as in small models.
TEXTUAL = CallWriting(), CallWriting(tool_format_of("functools[", lambda _: False)), CallWriting(NAMED)


@pytest.mark.parametrize(
    ("name", "writing"),
    [
        *((name, None) for name in NAMES if name not in ("llama", "gemma")),
        *(("gemma", writing) for writing in TEXTUAL),
    ],
)
def test_a_strict_tools_schema_is_held_where_it_may_be_called(name: str, writing: CallWriting | None) -> None:
    """OpenAI enforces it also for optional calls; other tools' arguments are any object."""
    writing = writing or writing_of(name)
    constraint = strict_calls(TOOLS, writing)
    assert constraint is not None
    write = writing.form.write
    assert takes(name, constraint, 'I would not. {"x": [1]} <b>')
    assert takes(name, constraint, "I look.\n" + write([("f", {"x": 1}), ("g", {"y": "z"})]))
    assert takes(name, constraint, write([("g", {})]) + " So. " + write([("f", {"x": 1})]) + " So be it.")
    assert not takes(name, constraint, "I look.\n" + write([("f", {"x": "1"})]))
    assert not takes(name, constraint, write([("f", {"x": 1})]) + " So. " + write([("f", {})]))
    assert not takes(name, constraint, write([("h", {})]))
    assert not takes(name, constraint, write([("g", "no object")]))


@pytest.mark.parametrize(
    ("text", "is_taken"),
    [
        ('I would not. {"name": "f", "parameters": {}} <b>', True),
        ('{"name": "Ulm", "parameters": {}}', True),
        ('{"type": "town", "name": "f"}', True),
        ('{"name": "f", "parameters": {"x": 1}}; {"name": "g", "parameters": {"y": "z"}}', True),
        ('\n{"name":"f","arguments":{"x": 1} }', True),
        ('{"type": "function", "name": "f", "parameters": {"x": 1}}', True),
        ('```json\n{"name": "f", "parameters": {"x": 1}}\n```', True),
        ('{"name": "f", "parameters": {"x": "1"}}', False),
        ('```\n{"name": "f", "parameters": {}}\n```', False),
        ('{"name": "g", "parameters": {}}; {"name": "f", "parameters": {}}', False),
        ('\n{ "name":"f","arguments":{} }', False),
        ('{"type": "function", "name": "f", "parameters": {}}', False),
        ('{"name": "f"}', False),
        ('{"name": "g", "parameters": "no object"}', False),
    ],
)
def test_a_call_without_a_mark_is_told_from_other_json_by_the_name_of_a_tool(text: str, *, is_taken: bool) -> None:
    """Llama 3 and Gemma write such calls; OpenAI's agents set `strict` for every tool."""
    for name in ("llama", "gemma"):
        constraint = strict_calls(TOOLS, writing_of(name))
        assert constraint is not None
        assert takes(name, constraint, text) is is_taken
        if name == "llama" and "Ulm" not in text and "I would" not in text:
            assert takes(name, constraint, f"I look.<|python_tag|>{text}") is (is_taken and "town" not in text)


def test_any_name_of_a_tool_is_told() -> None:
    names = ["a.b/c", "ä b", 'say "\\"', "f(x)|", "two\nlines"]
    tools = [{"type": "function", "function": STRICT["function"] | {"name": name}} for name in names]
    constraint = strict_calls(tools, writing_of("gemma"))
    assert constraint is not None
    for name in names:
        assert takes("gemma", constraint, BARE.write([(name, {"x": 1})]))
        assert not takes("gemma", constraint, BARE.write([(name, {})]))


def test_nothing_is_held_without_a_strict_tool() -> None:
    assert strict_calls(TOOLS[1:], writing_of("qwen3")) is None


@pytest.mark.parametrize("name", NAMES)
def test_an_answer_of_a_form_may_call_instead(name: str) -> None:
    """It used to be impossible: only the format was allowed, though agents request their final answer that way."""
    writing = writing_of(name)
    assert FORM is not None
    constraint = form_or_calls(FORM, TOOLS, writing, several=False)
    calls = writing.marked().form
    assert takes(name, constraint, json.dumps({"name": "f"}))
    assert takes(name, constraint, calls.write([("f", {"x": 1})]))
    assert not takes(name, constraint, calls.write([("f", {"x": 1}), ("f", {"x": 1})]))
    assert not takes(name, constraint, calls.write([("f", {})]))
    assert not takes(name, constraint, "I look.")
