"""The model endpoints in the OpenAPI document: FastAPI does not serve them, so it cannot describe them.

Bodies are described as far as the gateway itself looks at them; every other field passes through to the provider.
"""

from collections.abc import Mapping
from typing import Any, Final

Schema = dict[str, Any]

TEXT: Final[Schema] = {"type": "string"}
FLAG: Final[Schema] = {"type": ["boolean", "null"]}
COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
LIMIT: Final[Schema] = {"type": ["integer", "null"], "minimum": 1, "maximum": 10_000_000}
CONTENT: Final[Schema] = {
    "type": ["string", "array", "null"],
    "items": {"type": "object", "properties": {"type": TEXT, "text": {"type": ["string", "null"]}}},
}
PLAIN_INPUT: Final[Schema] = {
    "oneOf": [
        TEXT,
        {"type": "array", "items": {"oneOf": [TEXT, COUNT, {"type": "array", "items": COUNT}]}},
    ]
}
MODEL: Final[Schema] = {"type": "string", "description": "`auto`, or any name that /v1/models lists."}
STREAMED: Final[Schema] = {"stream": FLAG, "stream_options": {"type": ["object", "null"]}}
OBJECTS: Final[Schema] = {"type": ["array", "null"], "items": {"type": "object"}}


def _object(required: tuple[str, ...], **properties: Schema) -> Schema:
    return {"type": "object", "required": list(required), "properties": properties}


MESSAGES: Final[Schema] = {
    "type": "array",
    "minItems": 1,
    "items": _object(("role",), role=TEXT, content=CONTENT),
}
TURNS: Final[Schema] = {
    "type": "array",
    "minItems": 1,
    "items": _object(
        ("role", "content"),
        role={"enum": ["user", "assistant"]},
        content={
            "oneOf": [
                TEXT,
                {"type": "array", "minItems": 1, "items": _object(("type", "text"), type={"const": "text"}, text=TEXT)},
            ]
        },
    ),
}
"""As Anthropic has them; blocks of other types exist too, and pass."""
COMPLETION: Final[Schema] = _object(("choices",), id=TEXT, object=TEXT, model=TEXT, choices={"type": "array"})
SCHEMAS: Final[Mapping[str, Schema]] = {
    "ChatCompletionRequest": _object(
        ("model", "messages"),
        model=MODEL,
        messages=MESSAGES,
        max_tokens=LIMIT,
        max_completion_tokens=LIMIT,
        n={"type": ["integer", "null"], "minimum": 1, "maximum": 128},
        tools=OBJECTS,
        response_format={"type": ["object", "null"], "properties": {"type": TEXT}},
        **STREAMED,
    ),
    "ChatCompletion": COMPLETION,
    "CompletionRequest": _object(
        ("model", "prompt"),
        model=MODEL,
        prompt=PLAIN_INPUT,
        max_tokens=LIMIT | {"minimum": 0},
        n={"type": ["integer", "null"], "minimum": 1, "maximum": 128},
        **STREAMED,
    ),
    "Completion": COMPLETION,
    "EmbeddingRequest": _object(("model", "input"), model=MODEL, input=PLAIN_INPUT),
    "Embeddings": _object(("data",), object=TEXT, model=TEXT, data={"type": "array", "items": {"type": "object"}}),
    "ResponsesRequest": _object(
        ("model", "input"),
        model=MODEL,
        input={"oneOf": [TEXT, {"type": "array", "items": {"type": "object"}}]},
        instructions={"type": ["string", "null"]},
        max_output_tokens=LIMIT,
        stream=FLAG,
        tools=OBJECTS,
    ),
    "Response": _object(
        ("id", "object", "status", "output"), id=TEXT, object={"const": "response"}, status=TEXT, output=OBJECTS
    ),
    "MessagesRequest": _object(
        ("model", "messages", "max_tokens"),
        model=MODEL,
        messages=TURNS,
        system=TEXT,
        max_tokens={"type": "integer", "minimum": 0, "maximum": 10_000_000},
        stream=FLAG,
        tools=OBJECTS,
    ),
    "Message": _object(
        ("id", "type", "role", "content", "usage"),
        id=TEXT,
        type={"const": "message"},
        role={"const": "assistant"},
        content={"type": "array", "items": {"type": "object"}},
        usage={"type": "object"},
    ),
    "CountRequest": _object(("model", "messages"), model=MODEL, messages=TURNS, system=TEXT, tools=OBJECTS),
    "Count": _object(("input_tokens",), input_tokens=COUNT),
    "MessagesError": _object(("type", "error"), type={"const": "error"}, error=_object(("type", "message"))),
    "Error": _object(
        ("error",),
        error={
            "type": "object",
            "required": ["message", "type"],
            "properties": {
                "message": TEXT,
                "type": TEXT,
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        },
    ),
}
ENDPOINTS: Final[Mapping[str, tuple[str, str, str]]] = {
    "/v1/chat/completions": ("Answer a chat.", "ChatCompletionRequest", "ChatCompletion"),
    "/v1/completions": ("Complete a text.", "CompletionRequest", "Completion"),
    "/v1/embeddings": ("Embed texts.", "EmbeddingRequest", "Embeddings"),
    "/v1/responses": ("Answer in OpenAI's Responses format.", "ResponsesRequest", "Response"),
    "/v1/messages": ("Answer in Anthropic's Messages format.", "MessagesRequest", "Message"),
    "/v1/messages/count_tokens": ("Count the input tokens of a message.", "CountRequest", "Count"),
}
ERRORS: Final[Mapping[str, str]] = {
    "400": "The body is not what the endpoint takes, or no model may serve it as it is.",
    "401": "No key, or not one of this gateway's.",
    "403": "A key that may not call models.",
    "404": "No such model, or not for this key.",
    "408": "The body did not come.",
    "413": "The body is too large.",
    "415": "The body's content-encoding is not read here.",
    "422": "The idempotency key was used with another request.",
    "429": "A rate or a budget is used up; `x-should-retry: false` where waiting does not help.",
    "502": "Every model that was tried failed.",
    "503": "No model may serve this now, or the gateway takes no more.",
    "504": "No model answered in time.",
}
HEADERS: Final[Mapping[str, tuple[Schema, str]]] = {
    "x-breakeven-tags": ({"type": "string", "pattern": "^[a-z0-9,-]{0,64}$"}, "Comma-separated tags; rules see them."),
    "x-breakeven-cache": (
        {"type": "string", "pattern": "^(on|off|[0-9]{1,6})$"},
        "Use the response cache: on, off or for how many seconds an answer may be used.",
    ),
    "idempotency-key": (
        {"type": "string", "pattern": "^[A-Za-z0-9-]{1,64}$"},
        "Equal requests under one key are served once; every caller gets that answer.",
    ),
}


def complete_document(document: dict[str, Any]) -> dict[str, Any]:
    """FastAPI's document with the model endpoints in it, and with the errors that ours answer instead of FastAPI's."""
    components = document.setdefault("components", {})
    components.setdefault("schemas", {}).update(SCHEMAS)
    components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    for path in document["paths"].values():
        for operation in path.values():
            operation["responses"].pop("422", None)
            operation["responses"]["4XX"] = {
                "description": "Refused; the message says why.",
                "content": {"application/json": _reference("Error")},
            }
    for path, (summary, request, response) in ENDPOINTS.items():
        document["paths"][path] = {"post": _operation(path, summary, request, response)}
    return document


def _operation(path: str, summary: str, request: str, response: str) -> Schema:
    answers: dict[str, Schema] = {"application/json": _reference(response)}
    if "stream" in SCHEMAS[request]["properties"]:
        answers["text/event-stream"] = {"schema": TEXT}
    failed = _reference("MessagesError" if path.startswith("/v1/messages") else "Error")
    return {
        "tags": ["models"],
        "summary": summary,
        "operationId": path.removeprefix("/v1/").replace("/", "_"),
        "security": [{"key": []}],
        "parameters": [
            {"name": name, "in": "header", "required": False, "schema": schema, "description": text}
            for name, (schema, text) in HEADERS.items()
        ],
        "requestBody": {"required": True, "content": {"application/json": _reference(request)}},
        "responses": {
            "200": {"description": "The answer; a stream of events where `stream` is true.", "content": answers},
            **{
                status: {"description": text, "content": {"application/json": failed}}
                for status, text in ERRORS.items()
            },
        },
    }


def _reference(name: str) -> Schema:
    return {"schema": {"$ref": f"#/components/schemas/{name}"}}
