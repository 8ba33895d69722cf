"""The OpenAPI document matches the bodies that the gateway accepts, field by field."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, get_args

import msgspec
import pytest
from jsonschema import Draft202012Validator

from backends.protocol import Operation
from gateway.api.openapi_content import CONTENT_SCHEMAS
from gateway.api.openapi_hot import ENDPOINTS, FORMS, SCHEMAS, complete_document
from gateway.errors import InvalidRequest
from gateway.request.bodies import DECODERS
from gateway.request.media_views import IMAGE, MODERATION, SPEECH
from gateway.request.rerank_view import RERANK_BODY
from gateway.request.run import Incoming
from gateway.request.view_of import view_of

TURNS = [{"role": "user", "content": "hello"}]
BODIES: Mapping[Operation, dict[str, Any]] = {
    "chat.completions": {"model": "auto", "messages": TURNS},
    "completions": {"model": "auto"},
    "embeddings": {"model": "auto", "input": "hello"},
    "responses": {"model": "auto"},
    "responses.input_tokens": {},
    "messages": {"model": "auto", "messages": TURNS, "max_tokens": 5},
    "messages.count_tokens": {"model": "auto", "messages": TURNS},
    "moderations": {"input": "hello"},
    "images.generations": {"prompt": "a cat"},
    "audio.speech": {"input": "hello"},
    "rerank": {"query": "hello", "documents": ["hello"]},
}
READERS: Mapping[Operation, msgspec.json.Decoder[Any]] = {
    **DECODERS,
    "moderations": MODERATION,
    "images.generations": IMAGE,
    "audio.speech": SPEECH,
    "rerank": RERANK_BODY,
}
CONTENTS = [{"role": "user", "parts": [{"text": "hello"}]}]
CONTENT: Mapping[Operation, str] = {
    "generate_content": "ContentRequest",
    "generate_content.count_tokens": "ContentCountRequest",
}
"""In Gemini's format, whose model stands in its address."""
LEFT_TO_PROVIDERS = {"tools", "functions"}
"""Lists of objects; whether they are objects a provider says."""
BLOCKS = [{"type": "text", "text": "a"}, {"type": "image", "source": {}}, {"type": "thinking", "text": None}]
PROBES: list[Any] = [
    None, True, -1, 0, 1, 128, 129, 10_000_000, 10_000_001, 0.5, "", "text", [], {}, ["text"], [1, 2], [[1, 2], "a"],
    [{}], BLOCKS, BLOCKS[:1], [{"type": 1}], [{"text": 1}], {"type": "text"}, {"type": 1}, {"include_usage": True},
    {"include_usage": 1}, {"format": {"type": "json_schema"}}, {"format": 1}, {"format": None}, [None], [[None]],
    [{"role": "user"}], [{"role": "system", "content": BLOCKS}], [{"role": "user", "content": None}], [{"role": 1}],
    [{"role": "user", "content": 1}], [{"role": "user", "content": ["a"]}], [{"content": "a"}], [{"output": BLOCKS}],
    [{"output": {"type": "image"}}], [{"output": 1}], [{"type": "function_call", "arguments": {}}],
]  # fmt: skip


def fields_of(operation: Operation) -> Iterator[msgspec.inspect.Field]:
    known = msgspec.inspect.type_info(READERS[operation].type)
    assert isinstance(known, msgspec.inspect.StructType)
    yield from known.fields


def schema_of(operation: Operation) -> dict[str, Any]:
    return SCHEMAS[ENDPOINTS[f"/v1/{operation.replace('.', '/')}"][1]]


def is_taken(operation: Operation, body: object) -> bool:
    try:
        view_of(Incoming(operation, None, json.dumps(body).encode()))
    except InvalidRequest:
        return False
    return True


def test_every_operation_but_those_of_health_takes_a_key() -> None:
    def operation(tag: str) -> dict[str, Any]:
        return {"get": {"tags": [tag], "description": "One.", "responses": {}}}

    document = complete_document({"paths": {"/healthz": operation("health"), "/admin/v1/me": operation("admin: keys")}})
    takes = {
        path: one.get("security", document["security"])
        for path, item in document["paths"].items()
        for one in item.values()
    }
    assert takes.pop("/healthz") == []
    assert {"/admin/v1/me", "/v1/chat/completions"} <= takes.keys()
    assert all(security == [{"key": []}] for security in takes.values())


def test_every_operation_is_described() -> None:
    assert set(BODIES) == set(READERS) <= set(get_args(Operation))
    forms = {"images.edits", "audio.transcriptions", "audio.translations"}
    assert set(get_args(Operation)) - set(READERS) == forms | set(CONTENT)
    assert {f"/v1/{one.replace('.', '/')}" for one in forms} == set(FORMS)


@pytest.mark.parametrize("operation", BODIES)
def test_every_field_that_is_looked_at_is_described(operation: Operation) -> None:
    described = schema_of(operation)
    assert {one.encode_name for one in fields_of(operation)} == set(described["properties"])
    assert is_taken(operation, BODIES[operation])
    assert set(described["required"]) == set(BODIES[operation])
    for name in BODIES[operation]:
        assert not is_taken(operation, {key: value for key, value in BODIES[operation].items() if key != name})


@pytest.mark.parametrize("operation", BODIES)
def test_what_is_described_is_what_is_taken(operation: Operation) -> None:
    validator = Draft202012Validator(schema_of(operation))
    wrong: list[str] = []
    for name in schema_of(operation)["properties"]:
        for probe in PROBES:
            body = {**BODIES[operation], name: probe}
            said, taken = validator.is_valid(body), is_taken(operation, body)
            if taken is not said and not (taken and name in LEFT_TO_PROVIDERS):
                wrong.append(f"{name}: {json.dumps(probe)} is {'taken' if taken else 'refused'}")
    assert not wrong


@pytest.mark.parametrize("operation", CONTENT)
def test_what_is_described_of_geminis_format_is_what_is_taken(operation: Operation) -> None:
    schema = CONTENT_SCHEMAS[CONTENT[operation]]
    assert schema["required"] == ["contents"]
    assert is_taken(operation, {"contents": CONTENTS})
    assert not is_taken(operation, {})
    limits = [{"maxOutputTokens": value} for value in (None, -1, 0, 9, 10_000_001, 0.5, "text", [])]
    counts = [{"candidateCount": value} for value in (None, -1, 1, 129, 0.5, {})]
    validator = Draft202012Validator(schema)
    wrong: list[str] = []
    for name in schema["properties"]:
        for probe in [*PROBES, *limits, *counts]:
            body = {"contents": CONTENTS, name: probe}
            said, taken = validator.is_valid(body), is_taken(operation, body)
            if taken is not said and not (taken and name in LEFT_TO_PROVIDERS | {"contents"}):
                wrong.append(f"{name}: {json.dumps(probe)} is {'taken' if taken else 'refused'}")
    assert not wrong
