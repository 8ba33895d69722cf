"""Compiled constraints stay cached while there is room."""

import time

import pytest
import torch
from llguidance import LLMatcher

from local_engine.sampling import guidance
from local_engine.sampling.guidance import KEPT_WEIGHT, WEIGHT_OF_10_MS, GuidanceVocabulary, weight_of
from local_engine.sampling.kept_constraints import KeptConstraints
from local_engine.sampling.sampling_params import Constraint
from local_engine.text.tokenizer import Tokenizer
from tests.unit.local_engine.tiny_models import byte_level


@pytest.mark.parametrize(
    ("asked", "compiled"),
    [
        ("a b a b", "a b"),
        ("a b c a", "a b c a"),
        ("a b a c a b", "a b c b"),
        ("aaa bbb aaa", "aaa bbb aaa"),
        ("a bbb a bbb", "a bbb"),
        ("a b aaaaaaaaa aaaaaaaaa a", "a b aaaaaaaaa a"),
    ],
    ids=["again", "one too many", "the least recently used goes", "too heavy together", "as heavy as may be", "alone"],
)
def test_what_is_kept_is_not_compiled_again(asked: str, compiled: str) -> None:
    """At most two, of four letters in total."""
    built: list[str] = []

    def build(constraint: Constraint) -> str:
        built.append(constraint.source)
        return constraint.source.upper()

    kept = KeptConstraints(build, lambda constraint, _: len(constraint.source), count=2, weight=4)
    answers = [kept.get(Constraint("regex", source)) for source in asked.split()]
    assert answers == asked.upper().split()
    assert built == compiled.split()


def test_a_grammar_weighs_by_its_length_and_its_remainders() -> None:
    """A compiled expression of half a million letters takes 220 MB, and 32 of them used to be cached."""
    tokenizer = Tokenizer(byte_level(), chat_template=None, bos_token_id=None, eos_token_ids=[257])
    compiled: list[str] = []

    class Counting(GuidanceVocabulary):
        def _compile(self, constraint: Constraint) -> LLMatcher:
            compiled.append(constraint.source)
            return super()._compile(Constraint("regex", "a"))

    vocabulary = Counting(tokenizer, 260)
    long = Constraint("regex", "a" * (KEPT_WEIGHT // 2))
    many = Constraint("json_schema", '{"multipleOf": 49999}')
    for constraint in (long, many, long, Constraint("regex", "b" * (KEPT_WEIGHT // 2)), long, many):
        vocabulary.matcher(constraint)
    assert [source[0] for source in compiled] == ["a", "{", "b", "{"]


def test_what_takes_long_to_compile_weighs_much() -> None:
    """Nested repetitions: 32 expressions of thirty characters used to be cached, with 170 MB each."""
    built: list[str] = []

    def build(constraint: Constraint) -> None:
        built.append(constraint.source)
        began = time.thread_time()
        while time.thread_time() - began < 0.012:
            pass

    kept = KeptConstraints(build, weight_of, count=3, weight=WEIGHT_OF_10_MS * 2)
    for source in ("a", "b", "b", "a"):
        kept.get(Constraint("regex", source))
    assert built == ["a", "b", "a"]


def test_the_first_mask_is_worked_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a schema of 300 alternatives it took 120 ms between two steps, delaying everyone, in every answer."""
    has_to_work: list[bool] = []

    class Watched:
        grammar_from_json_schema = LLMatcher.grammar_from_json_schema
        grammar_from_regex = LLMatcher.grammar_from_regex

        def __init__(self, *_: object, **__: object) -> None:
            self.knows = False

        def deep_copy(self) -> "Watched":
            copy = Watched()
            copy.knows = self.knows
            return copy

        def compute_bitmask(self) -> bytes:
            has_to_work.append(not self.knows)
            self.knows = True
            return bytes(40)

        def is_error(self) -> bool:
            return False

        def get_error(self) -> str:
            return ""

    monkeypatch.setattr(guidance, "LLMatcher", Watched)
    tokenizer = Tokenizer(byte_level(), chat_template=None, bos_token_id=None, eos_token_ids=[257])
    vocabulary = GuidanceVocabulary(tokenizer, 260)
    for _ in range(2):
        vocabulary.matcher(Constraint("regex", "a")).mask(torch.zeros(260))
    assert has_to_work == [True, False, False]
