"""Answers with thoughts before the constrained part: what is allowed where, and what is drawn."""

import pytest
import torch

from local_engine.request import Request
from local_engine.sampling.constraints import ConstraintCompiler
from local_engine.sampling.sampler import Sampler
from local_engine.sampling.sampling_params import Constraint, SamplingParams, Thoughts
from local_engine.sampling.thoughts import AfterThoughts, thoughts_before
from local_engine.text.thinking import Thinking
from local_engine.text.tokenizer import Tokenizer
from tests.unit.local_engine.text.thinking_template import tokenizer

END, VOCABULARY = 257, 260
NUMBER = Constraint("regex", "[0-9]{2}")


@pytest.fixture(scope="module")
def reads() -> Tokenizer:
    return tokenizer()


def allowed(text: str, *, is_open: bool, reads: Tokenizer) -> bool:
    """Whether this is allowed as an answer, followed by an end."""
    thoughts = thoughts_before(Thinking(is_open), reads, VOCABULARY)
    assert thoughts is not None
    matcher = AfterThoughts(ConstraintCompiler(reads, VOCABULARY).matcher(NUMBER), thoughts)
    for token in (*reads.encode(text, with_bos=False), END):
        if not matcher.mask(torch.zeros(VOCABULARY))[token].isfinite():
            return False
        matcher.consume(token)
    return matcher.is_complete


@pytest.mark.parametrize(
    ("is_open", "text", "is_allowed"),
    [
        (False, "12", True),
        (False, "<think>Is it 7?</think>12", True),
        (False, "<think></think>\n12", True),
        (False, "<think>Hm.</think>\n\n12", False),  # two tokens, of which only one is a blank outside the constraint
        (False, "<think>Hm.</think>So 12", False),
        (False, "<think>Hm.", False),
        (False, "Hm.</think>12", False),
        (False, "\n12", False),
        (False, "1<think>", False),
        (True, "Hm.</think>12", True),
        (True, "<think>Hm.</think>\n12", True),
        (True, "12</think>", False),
        (True, "12", False),
    ],
)
def test_what_must_match_begins_behind_the_thoughts(
    is_open: bool, text: str, is_allowed: bool, reads: Tokenizer
) -> None:
    assert allowed(text, is_open=is_open, reads=reads) is is_allowed


def test_no_thoughts_where_none_are_wanted_or_no_token_ends_them(reads: Tokenizer) -> None:
    assert thoughts_before(Thinking(is_open=False, is_over=True), reads, VOCABULARY) is None
    assert thoughts_before(Thinking(is_open=True), reads, 259) is None
    assert thoughts_before(Thinking(is_open=False), reads, 260) == Thoughts(False, (258,), 259, (10,), (END,))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_sampler_thinks_first(reads: Tokenizer, temperature: float) -> None:
    likes = reads.encode("<think>Hm.</think>So 12", with_bos=False)
    params = SamplingParams(
        temperature=temperature,
        constraint=NUMBER,
        thoughts=thoughts_before(Thinking(is_open=False), reads, VOCABULARY),
    )
    request = Request("r", [1], params)
    sampler = Sampler(torch.device("cpu"), ConstraintCompiler(reads, VOCABULARY))
    for liked in likes:
        logits = torch.zeros(1, VOCABULARY)
        logits[0, liked] = 100.0
        [drawn] = sampler.draw(logits, [request])
        request.token_ids += drawn.token_ids
        if drawn.is_complete:
            break
    said = reads.decode(request.output_token_ids)
    assert said.startswith("<think>Hm.</think>")
    assert said.removeprefix("<think>Hm.</think>").strip().isdecimal()
