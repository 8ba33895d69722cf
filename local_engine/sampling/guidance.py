"""Constraints with llguidance: an index of one vocabulary, and the state of an answer within a grammar."""

import re
import sys
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation, Overflow
from functools import partial
from typing import Any, Final

import numpy as np
import torch
from llguidance import LLMatcher, LLTokenizer
from llguidance.gbnf_to_lark import GrammarParser, resolve

from local_engine.errors import NotOffered
from local_engine.sampling.kept_constraints import KeptConstraints
from local_engine.sampling.sampling_params import FORMAT, Constraint
from local_engine.sampling.unspelt import unspelt, with_ids
from local_engine.text.tokenizer import Tokenizer

KEPT_CONSTRAINTS: Final = 32
# Total characters and remainders of the cached constraints: each takes up to 450 bytes, mostly 40 to 170.
KEPT_WEIGHT: Final = 500_000
# Nested repetitions take long and much memory: thirty characters 0.7 s and 170 MB.
WEIGHT_OF_10_MS: Final = KEPT_WEIGHT // 100
SCHEMA_FAULT: Final = "failed to compile JSON schema: "
NOTHING: Final = "NoExtensionBias"
NOT_KEPT: Final = ("Unimplemented keys:", "Unknown format:")
# What the library did not expect, with a stack; known of a schema of 12,000 fields.
PANIC: Final = "panic: "
SEVERAL: Final = "oneOf constraints are not supported"
WAYS_OUT: Final = 'leave it out, or put "x-guidance": {"lenient": true} into the schema, and it is passed over'
MULTIPLES: Final = re.compile(r'"multipleOf"\s*:\s*([0-9.eE+-]+)')
ESCAPED: Final = re.compile(r"\\u([0-9a-fA-F]{4})")
# The library enumerates every remainder: this many take a third of a second and 11 MB, a million 10 s and 400 MB.
MOST_REMAINDERS: Final = 50_000
# With at most this many before its trailing zeros, a number was measured to cost next to nothing, whatever its size.
FEW_REMAINDERS: Final = 1000
CODED: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|.)", re.DOTALL)
TOKENS_THERE_ARE: Final = "; following special tokens are available"
# Grammar lines, as the library quotes them to locate an error.
QUOTED: Final = re.compile(r"\n +\d+ \| ")


class GuidanceVocabulary:
    """A tokenizer's vocabulary, indexed once for all grammars."""

    def __init__(self, tokenizer: Tokenizer, vocabulary_size: int) -> None:
        size = max(vocabulary_size, tokenizer.vocabulary_size)
        # The grammar has a single end token; a model may have several, and any of them ends the answer.
        self._ends = sorted(end for end in tokenizer.eos_token_ids if end < vocabulary_size)
        source, self._special = unspelt(tokenizer.fast.to_str())
        self._index = LLTokenizer(source, n_vocab=size, eos_token=min(self._ends, default=0))
        # So that the step loop finds what a request's check has compiled.
        self._compiled = KeptConstraints(self._compile, weight_of, count=KEPT_CONSTRAINTS, weight=KEPT_WEIGHT)

    def matcher(self, constraint: Constraint) -> "GuidanceMatcher":
        """A fresh matcher at the beginning of an answer; raises NotOffered for an unsatisfiable constraint."""
        return GuidanceMatcher(self._compiled.get(constraint).deep_copy(), self._ends)

    def _compile(self, constraint: Constraint) -> LLMatcher:
        if remainders(constraint.source) > MOST_REMAINDERS:
            raise _refusal(
                constraint, f"multipleOf is kept to up to {MOST_REMAINDERS}, all together; take a smaller one or none"
            )
        # Its warnings are refusals of ours, which no log needs.
        matcher = LLMatcher(self._index, _grammar(constraint, self._special), log_level=0)
        # Some unsatisfiable constraints fail only at the first token. What the library computes for it stays with the
        # matcher, and need not be computed again between two steps.
        if not matcher.is_error():
            matcher.compute_bitmask()
        if matcher.get_error():
            raise _refusal(constraint, matcher.get_error())
        return matcher


class GuidanceMatcher:
    """The state of one answer within its constraint."""

    def __init__(self, matcher: LLMatcher, ends: list[int]) -> None:
        self._matcher = matcher
        self._ends = ends

    @property
    def is_complete(self) -> bool:
        """Whether nothing may follow."""
        return self._matcher.is_stopped()

    @property
    def failure(self) -> str | None:
        """Where the library gave up, its message's first line: mostly a limit of its own."""
        return self._matcher.get_error().partition("\n")[0] or None

    def mask(self, logits: torch.Tensor) -> torch.Tensor:
        """A copy of one row with every token that may not follow at minus infinity."""
        bits = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
        allowed = torch.from_numpy(np.unpackbits(bits, bitorder="little")[: logits.shape[-1]].astype(bool))
        if self._ends and allowed[self._ends[0]]:
            allowed[[end for end in self._ends if end < len(allowed)]] = True
        return logits.masked_fill(~allowed.to(logits.device), float("-inf"))

    def consume(self, token_id: int) -> None:
        """Advances by a drawn token."""
        self._matcher.consume_token(self._ends[0] if token_id in self._ends else token_id)


def weight_of(constraint: Constraint, seconds: float) -> int:
    return len(constraint.source) + remainders(constraint.source) + int(seconds * 100) * WEIGHT_OF_10_MS


def remainders(source: str) -> int:
    """The remainders that the library would enumerate for every `multipleOf` of a schema, or of one inside a
    grammar."""
    plain = ESCAPED.sub(lambda escape: chr(int(escape[1], 16)), source)
    return sum(_remainders_of(number) for number in MULTIPLES.findall(plain))


def _remainders_of(number: str) -> int:
    try:
        _, digits, exponent = Decimal(number).normalize().as_tuple()
    except Overflow:
        return MOST_REMAINDERS + 1
    except InvalidOperation:
        return 0
    zeros = max(0, exponent) if isinstance(exponent, int) else 0
    if len(digits) + zeros > len(str(1 << 32)):
        return MOST_REMAINDERS + 1
    before_zeros = int("".join(map(str, digits)))
    return before_zeros if before_zeros <= FEW_REMAINDERS else before_zeros * 10**zeros


def _from_grammar(source: str, special: Mapping[str, int]) -> Any:
    """Lark, or llama.cpp's GBNF, recognised by its `::=`."""
    if "::=" not in source:
        return LLMatcher.grammar_from_lark(with_ids(source, special))
    try:
        return LLMatcher.grammar_from_lark(_lark(source))
    # The library raises bare Exception for a grammar that it cannot parse.
    except Exception as error:
        raise ValueError(str(error)) from error


def _lark(gbnf: str) -> str:
    """GBNF's rules as Lark rules, never as terminals, which match greedily and swallow what should follow."""
    rules = GrammarParser().parse(CODED.sub(_recoded, gbnf))
    resolve(rules)
    for number, rule in enumerate(rules.values()):
        rule.name = rule.name if rule.name == "start" else f"{rule.name.lower()}_{number}"
    return "\n".join(map(str, rules.values()))


def _recoded(escape: re.Match[str]) -> str:
    """A character's code in a form of which the library loses no zeros: two digits, or the character itself."""
    named = escape[1] or escape[2]
    if named is None or not _is_character(code := int(named, 16)):
        return escape[0]
    return f"\\x{code:02x}" if code < 0x100 else chr(code)


def _is_character(code: int) -> bool:
    """Half a surrogate pair is none."""
    return code < 0xD800 or 0xDFFF < code <= sys.maxunicode


def _grammar(constraint: Constraint, special: Mapping[str, int]) -> Any:
    builders: dict[str, Any] = {
        "json_schema": LLMatcher.grammar_from_json_schema,
        "regex": LLMatcher.grammar_from_regex,
        "grammar": partial(_from_grammar, special=special),
    }
    try:
        return builders[constraint.kind](constraint.source)
    except (ValueError, TypeError) as error:
        raise _refusal(constraint, str(error)) from error


def _refusal(constraint: Constraint, reason: str) -> NotOffered:
    """The library's message, without the grammar generated around a schema or an expression."""
    is_tools = constraint.parameter == "tools"
    # A response format combined with tools is a grammar of ours, too.
    kind = "json_schema" if constraint.parameter == FORMAT and constraint.kind == "grammar" else constraint.kind
    if kind != "grammar" or is_tools:
        reason = QUOTED.split(reason.rpartition(SCHEMA_FAULT)[2])[0]
    reason = reason.partition(TOKENS_THERE_ARE)[0]
    reason = "nothing can satisfy it" if reason.startswith(NOTHING) else reason
    if reason.startswith(PANIC):
        reason = "it is too large or nested too deeply; ask for fewer fields, or for several answers"
    elif reason.startswith(SEVERAL):
        reason = f"a value may fit several parts of a oneOf; write anyOf, {WAYS_OUT}"
    elif reason.startswith(NOT_KEPT):
        reason = f"{reason}; {WAYS_OUT}"
    what = "schema of a tool's parameters" if is_tools else kind.replace("_", " ")
    return NotOffered(f"No answer can be kept to this {what}: {reason}", parameter=constraint.parameter)
