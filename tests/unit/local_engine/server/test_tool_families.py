"""Each family's calls: rendered in its template's format, forced in it, and parsed from it, streamed and whole."""

import json
from typing import Any

import jsonschema
import pytest
import torch

from local_engine.errors import InvalidRequest
from local_engine.request import Request
from local_engine.sampling.constraints import ConstraintCompiler
from local_engine.sampling.sampler import Sampler
from local_engine.text.tokenizer import Tokenizer
from tests.unit.local_engine.asking import allowed
from tests.unit.local_engine.server.scripted_chats import answer, asked
from tests.unit.local_engine.text.families import FAMILIES, Family, tokenizer_of

X = {"type": "object", "properties": {"x": {"type": "integer"}}}
F = {"type": "function", "function": {"name": "f", "description": "Does <i>f</i>", "parameters": X}}
TRIP: dict[str, Any] = {
    "type": "object",
    "properties": {
        "from": {"$ref": "#/$defs/Town"},
        "days": {"anyOf": [{"type": "integer", "minimum": 1, "maximum": 9}, {"type": "null"}]},
        "stops": {"type": "array", "items": {"$ref": "#/$defs/Town"}, "maxItems": 2},
    },
    "required": ["from", "days", "stops"],
    "additionalProperties": False,
    "$defs": {"Town": {"enum": ["Ulm", 'A "b"\\']}},
}
TOOLS = [
    *({"type": "function", "function": {"name": f"trip{number}", "parameters": TRIP}} for number in range(3)),
    {"type": "function", "function": {"name": "trip", "parameters": TRIP, "strict": True}},
]


@pytest.fixture(params=FAMILIES.values(), ids=list(FAMILIES), scope="module")
def family(request: pytest.FixtureRequest) -> Family:
    return request.param


@pytest.fixture(scope="module")
def reads(family: Family) -> Tokenizer:
    return tokenizer_of(family)


@pytest.mark.parametrize(("mode", "is_forced"), [("auto", False), ("required", True)])
def test_tools_that_are_not_allowed_are_left_out(mode: str, is_forced: bool) -> None:
    reads = tokenizer_of(FAMILIES["qwen3"])
    others = [{"type": "function", "function": {"name": name, "parameters": X}} for name in ("other", "third")]
    choice = allowed(mode, "f")
    prepared = asked(reads, tools=[others[0], F, others[1]], tool_choice=choice)
    alone = asked(reads, tools=[F], tool_choice=mode)
    assert prepared.prompts[0].token_ids == alone.prompts[0].token_ids
    assert (prepared.tools, prepared.constraint) == (alone.tools, alone.constraint)
    assert (prepared.constraint is not None) == is_forced


def call(number: int) -> dict[str, Any]:
    return {"id": f"call_{number}", "type": "function", "function": {"arguments": f'{{"x":{number}}}', "name": "f"}}


def test_half_a_character_that_a_call_names_is_told_as_its_name() -> None:
    """No tokenizer accepts one, and the resulting 500 made the engine look down."""
    reads = tokenizer_of(FAMILIES["qwen3"])
    half = {**call(1), "function": {"name": "f", "arguments": r'{"x": "\ud83d"}'}}
    messages = [{"role": "user", "content": "Do f."}, {"role": "assistant", "tool_calls": [half]}]
    assert r'{"x": "\ud83d"}' in reads.decode(asked(reads, messages=messages, tools=[F]).prompts[0].token_ids)


def test_an_earlier_turns_calls_and_results_are_told(family: Family, reads: Tokenizer) -> None:
    """SmolLM3's, Granite's, Phi's and Gemma's templates omit calls, Llama's rejects two, Mistral's their ids, and
    Gemma's any tool or result."""
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "Do f."},
        {"role": "assistant", "content": None, "tool_calls": [call(1), call(2)]},
        {"role": "tool", "tool_call_id": "call_1", "content": "one"},
        {"role": "tool", "tool_call_id": "call_2", "content": "two"},
        {"role": "user", "content": "And?"},
    ]
    prepared = asked(reads, messages=messages, tools=[F])
    text = reads.decode(prepared.prompts[0].token_ids, skips_special=False)
    assert family.calls in text
    assert family.results in text[text.index(family.calls) :]
    assert text.index("one") < text.index("two") < text.index("And?")
    for mark in family.marks:
        if mark in family.calls:
            assert reads.id_of(mark) in prepared.prompts[0].token_ids, "a mark is the token that the model knows"
    if "AVAILABLE" not in text and "Environment" not in text:
        assert "Does <i>f</i>" in text, "the model is told its tools"


def drawn(reads: Tokenizer, seed: int, ends: float = 4.0, **changes: Any) -> str:
    """An answer of a random model under a constraint."""
    [params] = asked(reads, tools=TOOLS, seed=seed, max_tokens=900, **changes).choices
    sampler = Sampler(torch.device("cpu"), ConstraintCompiler(reads, reads.vocabulary_size))
    request, random = Request("answer", [0], params), torch.Generator().manual_seed(seed)
    is_over = False
    while not is_over:
        logits = torch.randn(1, reads.vocabulary_size, generator=random)
        logits[0, 257] += ends
        [one] = sampler.draw(logits, [request])
        request.token_ids += one.token_ids
        is_over = one.is_complete or request.token_ids[-1] == 257
        assert request.output_tokens < params.max_tokens
    return reads.decode(request.output_token_ids)


async def test_a_forced_call_is_written_and_read_in_the_familys_form(family: Family, reads: Tokenizer) -> None:
    """A newline stops no call. If a mark is a token, its text would not do: the library used to give up at it."""
    asks: dict[str, Any] = {"tool_choice": "required", "stop": ["\n", "{"], "include_reasoning": False}
    if "<think>" in family.marks:
        asks["reasoning_effort"] = "none"
    text = drawn(reads, 1, **asks, parallel_tool_calls=True)
    told, _ = await answer(text, reads=reads, tools=TOOLS, **asks)
    assert (told["finish_reason"], told["content"]) == ("tool_calls", None)
    for one in told["tool_calls"]:
        assert one["function"]["name"].startswith("trip")
        jsonschema.validate(json.loads(one["function"]["arguments"]), TRIP)
    if family.marks:
        assert text.startswith(
            ("[TOOL_CALLS]", "<|tool_call|>[", "<tool_call>\n", '{"name": "trip', "<｜tool▁calls▁begin｜>")
        )
    assert len({one["id"] for one in told["tool_calls"]}) == len(told["tool_calls"])
    asks["tool_choice"] = {"type": "function", "function": {"name": "trip1"}}
    named = drawn(reads, 2, **asks)
    told, _ = await answer(named, reads=reads, tools=TOOLS, **asks)
    assert [one["function"]["name"] for one in told["tool_calls"]] == ["trip1"]


@pytest.mark.parametrize(("name", "seed"), [("mistral-named", 5), ("llama", 1)])
async def test_a_strict_tool_is_held_to_its_schema_in_a_free_answer(name: str, seed: int) -> None:
    """For the last of TOOLS; a model that starts a call with the first token cannot end it in any other way."""
    reads = tokenizer_of(FAMILIES[name])
    begins = next(iter(reads.marks.values()))
    text = drawn(reads, seed, ends=6.0, logit_bias={str(begins): 8}, tool_choice="auto")
    told, _ = await answer(text, reads=reads, tools=TOOLS)
    assert "trip" in [one["function"]["name"] for one in told["tool_calls"]]
    for one in told["tool_calls"]:
        if one["function"]["name"] == "trip":
            jsonschema.validate(json.loads(one["function"]["arguments"]), TRIP)
    assert asked(reads, tools=TOOLS[:3]).constraint is None
    assert asked(reads, tools=TOOLS, tool_choice="none").constraint is None


def test_a_template_that_refuses_for_another_reason_says_so() -> None:
    reads = tokenizer_of(FAMILIES["gemma"])
    with pytest.raises(InvalidRequest, match="must alternate"):
        asked(reads, messages=[{"role": "user", "content": "a"}, {"role": "user", "content": "b"}])
