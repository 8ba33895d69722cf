"""What an answer in a form may say instead: calls."""

import json
from functools import cache
from typing import Any

import pytest
import torch

from local_engine.sampling.constraints import ConstraintCompiler, requested_constraint
from local_engine.sampling.sampling_params import Constraint
from local_engine.sampling.tool_grammar import CallWriting, form_or_calls
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
    matcher = compiler.matcher(constraint)
    for token in (*tokenizer.encode(text), 257):
        if not matcher.mask(torch.zeros(tokenizer.vocabulary_size))[token].isfinite():
            return False
        matcher.consume(token)
        assert matcher.failure is None
    return True


def writing_of(name: str) -> CallWriting:
    tokenizer, _ = reads_of(name)
    return CallWriting(tokenizer.tool_format, tokenizer.marks)


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
