"""Keeps an answer inside a JSON schema, a regular expression or a grammar, through llguidance."""

import json
from functools import partial
from typing import Any, Final

import numpy as np
import torch
from llguidance import LLMatcher, LLTokenizer

from local_engine.errors import InvalidRequest
from local_engine.sampling_params import Constraint
from local_engine.tokenizer import Tokenizer

# Fixed separators: a small model given free whitespace may write nothing else.
JSON_STYLE: Final[Any] = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


class ConstraintCompiler:
    """Turns constraints into matchers over one vocabulary; the vocabulary's index is built on first use."""

    def __init__(self, tokenizer: Tokenizer, vocabulary_size: int) -> None:
        self._tokenizer = tokenizer
        self._vocabulary_size = max(vocabulary_size, tokenizer.vocabulary_size)
        self._vocabulary: LLTokenizer | None = None

    def check(self, constraint: Constraint) -> None:
        """Raise InvalidRequest for a constraint that is malformed or that nothing can satisfy."""
        self.matcher(constraint)

    def matcher(self, constraint: Constraint) -> "Matcher":
        """A fresh matcher at the beginning of an answer; raises InvalidRequest as `check` does."""
        matcher = LLMatcher(self._index(), _grammar(constraint))
        if matcher.is_error():
            raise InvalidRequest(
                f"The {constraint.kind} constraint cannot be used: {matcher.get_error()}", parameter="response_format"
            )
        return Matcher(matcher)

    def _index(self) -> LLTokenizer:
        if self._vocabulary is None:
            eos = min(self._tokenizer.eos_token_ids, default=0)
            text = self._tokenizer.fast.to_str()
            self._vocabulary = LLTokenizer(text, n_vocab=self._vocabulary_size, eos_token=eos)
        return self._vocabulary


class Matcher:
    """Where one answer stands in its constraint."""

    def __init__(self, matcher: LLMatcher) -> None:
        self._matcher = matcher

    @property
    def is_complete(self) -> bool:
        """Whether nothing may follow."""
        return self._matcher.is_stopped()

    def mask(self, logits: torch.Tensor) -> torch.Tensor:
        """A copy of one row with every token that may not follow at minus infinity."""
        bits = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
        allowed = torch.from_numpy(np.unpackbits(bits, bitorder="little")[: logits.shape[-1]].astype(bool))
        return logits.masked_fill(~allowed.to(logits.device), float("-inf"))

    def consume(self, token_id: int) -> None:
        """Advance by a drawn token."""
        self._matcher.consume_token(token_id)


def _grammar(constraint: Constraint) -> Any:
    builders: dict[str, Any] = {
        "json_schema": partial(LLMatcher.grammar_from_json_schema, overrides=JSON_STYLE),
        "regex": LLMatcher.grammar_from_regex,
        "grammar": LLMatcher.grammar_from_lark,
    }
    try:
        return builders[constraint.kind](constraint.source)
    except (ValueError, TypeError) as error:
        message = f"The {constraint.kind} constraint is malformed: {error}"
        raise InvalidRequest(message, parameter="response_format") from error


def requested_constraint(
    response_format: dict[str, Any] | None, structured_outputs: dict[str, Any] | None
) -> Constraint | None:
    """What the request's `response_format` (OpenAI) or `structured_outputs` (vLLM) asks for."""
    if structured_outputs:
        return _structured(structured_outputs)
    kind = (response_format or {}).get("type", "text")
    if kind == "text":
        return None
    if kind == "json_object":
        return Constraint("json_schema", '{"type": "object"}')
    schema = (response_format or {}).get("json_schema")
    if kind != "json_schema" or not isinstance(schema, dict) or not isinstance(schema.get("schema"), dict):
        raise InvalidRequest(
            "response_format is text, json_object, or json_schema with a schema.", parameter="response_format"
        )
    return Constraint("json_schema", json.dumps(schema["schema"]))


def _structured(wanted: dict[str, Any]) -> Constraint:
    for key, kind in (("json", "json_schema"), ("regex", "regex"), ("grammar", "grammar")):
        if wanted.get(key) is not None:
            source = wanted[key]
            return Constraint(kind, source if isinstance(source, str) else json.dumps(source))
    raise InvalidRequest("structured_outputs takes json, regex or grammar.", parameter="structured_outputs")


def tool_constraint(tools: list[dict[str, Any]], name: str | None) -> Constraint:
    """A grammar of exactly one tool call: any of the tools, or the one of that name."""
    functions = [tool.get("function", {}) for tool in tools]
    wanted = [function for function in functions if name is None or function.get("name") == name]
    if not wanted:
        raise InvalidRequest(f"tool_choice names no tool of this request: {name}.", parameter="tool_choice")
    schema = {"anyOf": [_call_schema(function) for function in wanted], "x-guidance": JSON_STYLE}
    return Constraint("grammar", f'start: "<tool_call>\\n" call "\\n</tool_call>"\ncall: %json {json.dumps(schema)}\n')


def _call_schema(function: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {
            "name": {"const": function.get("name", "")},
            "arguments": function.get("parameters") or {"type": "object"},
        },
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }
