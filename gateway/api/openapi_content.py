"""Gemini's endpoints in the OpenAPI document: the fields that the gateway itself reads."""

from collections.abc import Mapping
from typing import Any, Final

Schema = dict[str, Any]

COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
MAYBE_OBJECT: Final[Schema] = {"type": ["object", "null"]}
OBJECTS: Final[Schema] = {"type": ["array", "null"], "items": {"type": "object"}}
CONTENTS: Final[Schema] = {
    "type": "array",
    "minItems": 1,
    "items": {"type": "object", "properties": {"role": {"enum": ["user", "model"]}, "parts": OBJECTS}},
}
CONFIG: Final[Schema] = {
    "type": ["object", "null"],
    "properties": {
        "maxOutputTokens": {"type": ["integer", "null"], "minimum": 0, "maximum": 10_000_000},
        "candidateCount": {"type": ["integer", "null"], "minimum": 0, "maximum": 128},
    },
}
CONTENT_TO_COUNT: Final[Schema] = {"contents": CONTENTS, "systemInstruction": MAYBE_OBJECT, "tools": OBJECTS}
EMBEDDED: Final[Schema] = {
    "type": "object",
    "properties": {"values": {"type": "array", "items": {"type": "number"}}},
}
TEXTS: Final[Schema] = {
    "type": "object",
    "required": ["parts"],
    "properties": {
        "parts": {
            "type": "array",
            "items": {"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}},
        }
    },
}
EMBED: Final[Schema] = {
    "type": "object",
    "required": ["content"],
    "properties": {"content": TEXTS, "outputDimensionality": {"type": ["integer", "null"], "minimum": 1}},
}


def shape(required: tuple[str, ...], **properties: Schema) -> Schema:
    return {"type": "object", "required": list(required), "properties": properties}


CONTENT_SCHEMAS: Final[Mapping[str, Schema]] = {
    "ContentRequest": shape(
        ("contents",),
        **CONTENT_TO_COUNT,
        generationConfig=CONFIG,
        toolConfig={},
        cachedContent={},
        serviceTier={},
    ),
    "Content": shape(
        ("candidates",),
        candidates={"type": "array", "items": {"type": "object"}},
        usageMetadata={"type": "object"},
        modelVersion={"type": "string"},
        responseId={"type": "string"},
    ),
    "ContentCountRequest": shape(("contents",), **CONTENT_TO_COUNT),
    "ContentCount": shape(("totalTokens",), totalTokens=COUNT),
    "EmbedContentRequest": EMBED,
    "EmbedContent": shape(("embedding",), embedding=EMBEDDED),
    "BatchEmbedContentsRequest": shape(("requests",), requests={"type": "array", "minItems": 1, "items": EMBED}),
    "BatchEmbedContents": shape(("embeddings",), embeddings={"type": "array", "items": EMBEDDED}),
    "GoogleError": shape(
        ("error",),
        error=shape(
            ("code", "message", "status"),
            code={"type": "integer"},
            message={"type": "string"},
            status={"type": "string"},
            details={"type": "array", "items": {"type": "object"}},
        ),
    ),
}
AT: Final = "/v1beta/models/{model}"
CONTENT_ENDPOINTS: Final[Mapping[str, tuple[str, str, str]]] = {
    f"{AT}:generateContent": ("Generate content (Gemini's API).", "ContentRequest", "Content"),
    f"{AT}:streamGenerateContent": ("Generate content as a stream (Gemini's API).", "ContentRequest", ""),
    f"{AT}:countTokens": ("Count input tokens (Gemini's API).", "ContentCountRequest", "ContentCount"),
    f"{AT}:embedContent": ("Embed a text (Gemini's API).", "EmbedContentRequest", "EmbedContent"),
    f"{AT}:batchEmbedContents": ("Embed texts (Gemini's API).", "BatchEmbedContentsRequest", "BatchEmbedContents"),
}
"""Also served under `/v1/models/{model}`."""
STREAMED_CONTENT: Final[Mapping[str, Schema]] = {
    "application/json": {"schema": {"type": "array", "items": {"$ref": "#/components/schemas/Content"}}},
    "text/event-stream": {},
}
MODEL_PARAMETER: Final[Schema] = {
    "name": "model",
    "in": "path",
    "required": True,
    "schema": {"type": "string", "minLength": 1},
    "description": "`auto`, or any name that /v1/models lists.",
}
ALT_PARAMETER: Final[Schema] = {
    "name": "alt",
    "in": "query",
    "required": False,
    "schema": {"enum": ["sse", "json"]},
    "description": "`sse`: a stream of events; otherwise one JSON list, also sent piece by piece.",
}
