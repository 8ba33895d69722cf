"""Constraints at work: what a required tool call may say, and what a ban may not take from a schema."""

import json
from typing import Any

import pytest
import torch

from local_engine.constraints import ConstraintCompiler, Matcher, tool_constraint
from local_engine.request import Request
from local_engine.sampler import Sampler
from local_engine.sampling_params import Constraint, SamplingParams
from local_engine.tokenizer import Tokenizer
from tests.unit.local_engine.tiny_models import byte_level

VOCABULARY, END = 260, 257
TOWN: dict[str, Any] = {"type": "object", "properties": {"name": {"type": "string"}}, "additionalProperties": False}


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer(byte_level(), chat_template=None, bos_token_id=None, eos_token_ids=[END])


@pytest.fixture(scope="module")
def constraints(tokenizer: Tokenizer) -> ConstraintCompiler:
    return ConstraintCompiler(tokenizer, VOCABULARY)


def tool(name: str, parameters: dict[str, Any] | None) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name} | ({"parameters": parameters} if parameters else {})}


def takes(matcher: Matcher, token_ids: list[int]) -> bool:
    """Whether the constraint allows these tokens, one after another, and an end after them."""
    for token in (*token_ids, END):
        if not matcher.mask(torch.zeros(VOCABULARY))[token].isfinite():
            return False
        matcher.consume(token)
    return True


@pytest.mark.parametrize(
    ("call", "is_allowed"),
    [
        ({"name": "visit", "arguments": {"town": {"name": "Ulm"}, "next": {"town": {"name": "Bonn"}}}}, True),
        ({"name": "visit", "arguments": {"town": {"nom": "Ulm"}}}, False),
        ({"name": 'a "quoted"\nname', "arguments": {"count": 3}}, True),
        ({"name": 'a "quoted"\nname', "arguments": {"town": {"name": "Ulm"}}}, False),
        ({"name": "anything", "arguments": {"x": [1, None]}}, True),
        ({"name": "unheard-of", "arguments": {}}, False),
    ],
    ids=json.dumps,
)
def test_a_tools_schema_may_refer_to_its_own_definitions(
    tokenizer: Tokenizer, constraints: ConstraintCompiler, call: dict[str, Any], *, is_allowed: bool
) -> None:
    """Pydantic writes `$defs` for every model within a model; and a schema may hold itself."""
    visit: dict[str, Any] = {
        "type": "object",
        "properties": {"town": {"$ref": "#/$defs/Town"}, "next": {"$ref": "#"}},
        "additionalProperties": False,
        "$defs": {"Town": TOWN},
    }
    counts = {"type": "object", "properties": {"count": {"type": "integer"}}, "additionalProperties": False}
    tools = [tool("visit", visit), tool('a "quoted"\nname', counts), tool("anything", None)]
    text = f"<tool_call>\n{json.dumps(call)}\n</tool_call>"
    matcher = constraints.matcher(tool_constraint(tools, None))
    assert takes(matcher, tokenizer.encode(text)) is is_allowed


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_ban_that_leaves_a_schema_nothing_gives_way(
    tokenizer: Tokenizer, constraints: ConstraintCompiler, temperature: float
) -> None:
    """Where it leaves something, it holds."""
    banned = tuple((token,) for token in tokenizer.encode("{b"))
    params = SamplingParams(
        temperature=temperature, seed=1, banned=banned, constraint=Constraint("regex", r"\{(a|b)\}"), max_tokens=8
    )
    sampler, request = Sampler(torch.device("cpu"), constraints), Request("answer", [0], params)
    logits = torch.zeros(1, VOCABULARY)
    logits[0, tokenizer.encode("b")] = 9.0
    is_complete = False
    while not is_complete and request.output_tokens < params.max_tokens:
        [drawn] = sampler.draw(logits, [request])
        request.token_ids += drawn.token_ids
        is_complete = drawn.is_complete
    assert tokenizer.decode(request.output_token_ids) == "{a}"
