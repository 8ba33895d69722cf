"""Keeps an answer inside a JSON schema, a regular expression or a grammar; the library behind it loads on first use."""

import json
from typing import Any, Protocol

import torch

from local_engine.errors import InvalidRequest
from local_engine.sampling_params import JSON_STYLE, Constraint
from local_engine.tokenizer import Tokenizer


class Matcher(Protocol):
    """Where one answer stands in its constraint."""

    @property
    def is_complete(self) -> bool:
        """Whether nothing may follow."""
        ...

    def mask(self, logits: torch.Tensor) -> torch.Tensor:
        """A copy of one row with every token that may not follow at minus infinity."""
        ...

    def consume(self, token_id: int) -> None:
        """Advance by a drawn token."""
        ...


class Vocabulary(Protocol):
    """Makes matchers over one tokenizer's vocabulary."""

    def matcher(self, constraint: Constraint) -> Matcher: ...


class ConstraintCompiler:
    """Turns constraints into matchers over one vocabulary."""

    def __init__(self, tokenizer: Tokenizer, vocabulary_size: int) -> None:
        self._tokenizer = tokenizer
        self._vocabulary_size = vocabulary_size
        self._vocabulary: Vocabulary | None = None

    def check(self, constraint: Constraint) -> None:
        """Raise InvalidRequest for a constraint that is malformed or that nothing can satisfy."""
        self.matcher(constraint)

    def matcher(self, constraint: Constraint) -> Matcher:
        """A fresh matcher at the beginning of an answer; raises InvalidRequest as `check` does."""
        if self._vocabulary is None:
            # Imported here: most engines never meet a constraint, and can then do without the library.
            from local_engine.guidance import GuidanceVocabulary

            self._vocabulary = GuidanceVocabulary(self._tokenizer, self._vocabulary_size)
        return self._vocabulary.matcher(constraint)


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
