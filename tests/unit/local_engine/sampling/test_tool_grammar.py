"""What an answer may say beside its calls, and what its calls may say, where they need not come."""

import json
from functools import cache, partial
from typing import Any

import pytest
import torch

from local_engine.sampling.constraints import ConstraintCompiler, requested_constraint
from local_engine.sampling.marked_calls import MarkedCalls
from local_engine.sampling.sampling_params import Constraint
from local_engine.sampling.tool_grammar import CallWriting, form_or_calls, strict_calls
from local_engine.text.tokenizer import Tokenizer
from tests.unit.local_engine.text.families import FAMILIES, tokenizer_of

COUNT = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"], "additionalProperties": False}
STRICT = {"type": "function", "function": {"name": "f", "parameters": COUNT, "strict": True}}
LOOSE = {"type": "function", "function": {"name": "g", "parameters": COUNT}}
TOOLS: list[dict[str, Any]] = [STRICT, LOOSE]
FORM = requested_constraint({"type": "json_schema", "json_schema": {"schema": {"const": {"name": "f"}}}}, None)
NAMES = ("llama", "mistral", "mistral-named", "granite", "qwen3", "gemma")


@cache
def reads_of(name: str) -> tuple[Tokenizer, ConstraintCompiler]:
    tokenizer = tokenizer_of(FAMILIES[name])
    return tokenizer, ConstraintCompiler(tokenizer, tokenizer.vocabulary_size)


def takes(name: str, constraint: Constraint, text: str) -> bool:
    """Whether the family's model may say this, and end."""
    tokenizer, compiler = reads_of(name)
    begin = partial(compiler.matcher, constraint)
    matcher = begin() if constraint.mark is None else MarkedCalls(begin, constraint.mark)
    for token in (*tokenizer.encode(text), 257):
        if not matcher.mask(torch.zeros(tokenizer.vocabulary_size))[token].isfinite():
            return False
        matcher.consume(token)
        assert matcher.failure is None
    return True


def writing_of(name: str) -> CallWriting:
    tokenizer, _ = reads_of(name)
    return CallWriting(tokenizer.tool_format, tokenizer.marks)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("llama", "gemma")])
def test_a_strict_tools_schema_is_held_where_it_may_be_called(name: str) -> None:
    """OpenAI holds it without being forced to call; any other tool's arguments are an object."""
    writing = writing_of(name)
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


def test_nothing_is_held_without_a_strict_tool_or_a_token_that_begins_a_call() -> None:
    assert strict_calls(TOOLS[1:], writing_of("qwen3")) is None
    assert strict_calls(TOOLS, writing_of("llama")) is None
    assert strict_calls(TOOLS, CallWriting()) is None


@pytest.mark.parametrize("name", NAMES)
def test_an_answer_of_a_form_may_call_instead(name: str) -> None:
    """It never could: the form was all that it might say, though agents ask for their last answer so."""
    writing = writing_of(name)
    assert FORM is not None
    constraint = form_or_calls(FORM, TOOLS, writing, several=False)
    calls = writing.marked().form
    assert takes(name, constraint, json.dumps({"name": "f"}))
    assert takes(name, constraint, calls.write([("f", {"x": 1})]))
    assert not takes(name, constraint, calls.write([("f", {"x": 1}), ("f", {"x": 1})]))
    assert not takes(name, constraint, calls.write([("f", {})]))
    assert not takes(name, constraint, "I look.")
