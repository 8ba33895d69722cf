"""What a constraint allows as an answer of each family's model."""

from functools import cache, partial

import torch

from local_engine.sampling.constraints import ConstraintCompiler
from local_engine.sampling.marked_calls import MarkedCalls
from local_engine.sampling.sampling_params import Constraint
from local_engine.sampling.tool_grammar import CallWriting
from local_engine.text.tokenizer import Tokenizer
from tests.unit.local_engine.text.families import FAMILIES, tokenizer_of


@cache
def reads_of(name: str) -> tuple[Tokenizer, ConstraintCompiler]:
    tokenizer = tokenizer_of(FAMILIES[name])
    return tokenizer, ConstraintCompiler(tokenizer, tokenizer.vocabulary_size)


def takes(name: str, constraint: Constraint, text: str) -> bool:
    """Whether this is allowed as an answer of the family's model, followed by an end."""
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
