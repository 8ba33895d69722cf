"""Constrains answers to a JSON schema, a regular expression or a grammar, if the library for it is installed."""

import json
import threading
from contextlib import suppress
from typing import Any, Final, Protocol

import torch

from local_engine.errors import InvalidRequest, NotOffered
from local_engine.sampling.json_schema import guided_schema
from local_engine.sampling.sampling_params import FORMAT, Constraint
from local_engine.text.panics import panics_told
from local_engine.text.tokenizer import Tokenizer

OUTPUTS: Final = "structured_outputs"
# The last is text-generation-inference's.
SCHEMA_KINDS: Final = ("json_schema", "json_object", "json")
# Kind of constraint for each name in `structured_outputs`.
STRUCTURED: Final = {"json": "json_schema", "regex": "regex", "choice": "grammar", "grammar": "grammar"}


class Matcher(Protocol):
    """The state of one answer within its constraint."""

    @property
    def is_complete(self) -> bool:
        """Whether nothing may follow."""
        ...

    @property
    def failure(self) -> str | None:
        """Why it can no longer say what may follow; None while it can."""
        ...

    def mask(self, logits: torch.Tensor) -> torch.Tensor:
        """A copy of one row with every token that may not follow at minus infinity."""
        ...

    def consume(self, token_id: int) -> None:
        """Advances by a drawn token."""
        ...


class Vocabulary(Protocol):
    """Creates matchers over one tokenizer's vocabulary."""

    def matcher(self, constraint: Constraint) -> Matcher: ...


class ConstraintCompiler:
    """Turns constraints into matchers over one vocabulary. Thread-safe."""

    def __init__(self, tokenizer: Tokenizer, vocabulary_size: int) -> None:
        self._tokenizer = tokenizer
        self._vocabulary_size = vocabulary_size
        self._vocabulary: Vocabulary | None = None
        self._indexing = threading.Lock()

    def prepare(self) -> None:
        """Indexes the vocabulary, which blocks other threads; does nothing without the library."""
        with suppress(InvalidRequest):
            self._indexed()

    def check(self, constraint: Constraint) -> None:
        """Raise InvalidRequest for a constraint that is malformed or unsatisfiable.

        A large one takes a second, during which other threads run.
        """
        self.matcher(constraint)

    def matcher(self, constraint: Constraint) -> Matcher:
        """A fresh matcher at the beginning of an answer; raises InvalidRequest as `check` does."""
        return self._indexed().matcher(constraint)

    def _indexed(self) -> Vocabulary:
        with self._indexing:
            if self._vocabulary is None:
                self._vocabulary = self._index()
            return self._vocabulary

    def _index(self) -> Vocabulary:
        # Imported here: the library is optional.
        try:
            from local_engine.sampling.guidance import GuidanceVocabulary
        except ModuleNotFoundError as error:
            raise NotOffered(
                "This engine runs without the Python package llguidance, which keeps answers inside a schema, an "
                "expression or a grammar; leave the constraint out, or install it beside the engine.",
                parameter=FORMAT,
            ) from error
        try:
            with panics_told():
                return GuidanceVocabulary(self._tokenizer, self._vocabulary_size)
        # The library does not support every kind of vocabulary: such a model answers without constraints.
        except ValueError as error:
            message = f"This model's answers cannot be constrained: its vocabulary cannot be read ({error})."
            raise NotOffered(message, parameter=FORMAT) from error


def requested_constraint(
    response_format: dict[str, Any] | None, structured_outputs: dict[str, Any] | None
) -> Constraint | None:
    """What the request's `response_format` (OpenAI) or `structured_outputs` (vLLM) asks for; giving both is an
    error."""
    form = response_format or {}
    kind = form.get("type", "text")
    if structured_outputs:
        if kind != "text":
            raise InvalidRequest(
                "An answer can have only one constraint: response_format or another.", parameter=FORMAT
            )
        return _structured(structured_outputs)
    if kind == "text":
        return None
    if kind == "regex" and isinstance(form.get("value"), str):  # text-generation-inference's
        return Constraint("regex", form["value"], FORMAT)
    schema = _schema_in(form)
    if kind == "json_object" and (schema is None or schema == {}):
        schema = {"type": "object"}
    if kind not in SCHEMA_KINDS or not isinstance(schema, dict):
        message = "response_format is text, json_object, json_schema with a schema, or regex with a value."
        raise InvalidRequest(message, parameter=FORMAT)
    return _schema_constraint(schema, FORMAT)


def _schema_in(form: dict[str, Any]) -> Any:
    """The schema where OpenAI's clients put it; beside the type, as for llama.cpp, Fireworks and Together; or as
    `value`, as for Hugging Face."""
    described = form.get("json_schema")
    nested = described.get("schema") if isinstance(described, dict) else described
    return next((one for one in (nested, form.get("schema"), form.get("value")) if one is not None), None)


def _schema_constraint(schema: Any, parameter: str) -> Constraint:
    try:
        schema = json.loads(schema) if isinstance(schema, str) else schema
        source = guided_schema(schema) if isinstance(schema, dict) else None
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"The JSON schema cannot be read: {error}", parameter=parameter) from error
    if source is None:
        raise InvalidRequest("A JSON schema for an answer must be an object.", parameter=parameter)
    return Constraint("json_schema", source, parameter)


def _structured(wanted: dict[str, Any]) -> Constraint:
    asked = {key: wanted[key] for key in STRUCTURED if wanted.get(key) is not None}
    if len(asked) != 1:
        message = "structured_outputs takes one of json, regex, choice and grammar."
        raise InvalidRequest(message, parameter=OUTPUTS)
    [(key, source)] = asked.items()
    if key == "choice":
        return Constraint("grammar", _choice_grammar(source), OUTPUTS)
    if key == "json":
        return _schema_constraint(source, OUTPUTS)
    return Constraint(STRUCTURED[key], source if isinstance(source, str) else json.dumps(source), OUTPUTS)


def _choice_grammar(choices: Any) -> str:
    if not isinstance(choices, list) or not choices or not all(isinstance(text, str) and text for text in choices):
        raise InvalidRequest("choice takes a list of non-empty strings.", parameter=OUTPUTS)
    # A terminal of the grammar, not a rule: the library follows at most two thousand rules at once.
    return "start: CHOICE\nCHOICE: " + " | ".join(json.dumps(text) for text in choices) + "\n"
