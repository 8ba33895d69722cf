"""The model endpoints in the OpenAPI document: FastAPI does not serve them, so it cannot describe them.

Only fields that the gateway itself reads are described; all others pass through to the provider.
"""

from collections.abc import Mapping
from typing import Any, Final

from gateway.api.openapi_content import (
    ALT_PARAMETER,
    CONTENT_ENDPOINTS,
    CONTENT_SCHEMAS,
    COUNT,
    MODEL_PARAMETER,
    OBJECTS,
    STREAMED_CONTENT,
    Schema,
    shape,
)
from gateway.request.bodies import NamedModels

TEXT: Final[Schema] = {"type": "string"}
FLAG: Final[Schema] = {"type": ["boolean", "null"]}
LIMIT: Final[Schema] = {"type": ["integer", "null"], "minimum": 1, "maximum": 10_000_000}
MAYBE_TEXT: Final[Schema] = {"type": ["string", "null"]}
PART: Final[Schema] = {"type": "object", "properties": {"type": TEXT, "text": MAYBE_TEXT}}
CONTENT: Final[Schema] = {"type": ["string", "array", "null"], "items": PART}
"""Text or a list of parts, as in OpenAI's and Anthropic's formats; parts of other types pass through."""
TOKEN: Final[Schema] = {"type": "integer"}
PLAIN_INPUT: Final[Schema] = {
    "type": ["string", "array"],
    "items": {"type": ["string", "integer", "array"], "items": TOKEN},
}
ANYTHING: Final[Schema] = {}
MODEL: Final[Schema] = {"type": "string", "description": "`auto`, or any name that /v1/models lists."}
CHOICES: Final[Schema] = {"type": ["integer", "null"], "minimum": 1, "maximum": 128}
FORMAT: Final[Schema] = {"type": ["object", "null"], "properties": {"type": TEXT}}
FORMATTED: Final[Schema] = {"type": ["object", "null"], "properties": {"format": FORMAT}}
STREAMED: Final[Schema] = {
    "stream": FLAG,
    "stream_options": {"type": ["object", "null"], "properties": {"include_usage": FLAG}},
    "service_tier": MAYBE_TEXT,
}


MESSAGES: Final[Schema] = {
    "type": "array",
    "minItems": 1,
    "items": shape(("role",), role=TEXT, content=CONTENT),
}
ITEM: Final[Schema] = shape((), role=TEXT, content=CONTENT, output={"type": ["string", "array", "object", "null"]})
"""An input item of /v1/responses: a message, a call, a call's output or reasoning."""
NAMED_MODELS: Final[Mapping[str, Schema]] = dict.fromkeys(NamedModels.__struct_fields__, ANYTHING)
MESSAGE_TO_COUNT: Final[Schema] = {
    "model": MODEL,
    "messages": MESSAGES,
    "system": CONTENT,
    "stream": FLAG,
    "tools": OBJECTS,
    "output_config": FORMATTED,
    "output_format": FORMAT,
    "thread": ANYTHING,
    **NAMED_MODELS,
}
MAYBE_MODEL: Final[Schema] = {"type": ["string", "null"], "description": "`auto` (the default), or a model's name."}
FILE: Final[Schema] = {"type": "string", "format": "binary"}
IMAGE: Final[Mapping[str, Schema]] = {
    "model": MAYBE_MODEL,
    "prompt": TEXT,
    "n": CHOICES,
    "quality": MAYBE_TEXT,
    "stream": FLAG,
    "partial_images": {"type": ["integer", "null"]},
    "output_format": MAYBE_TEXT,
    "frame_count": {"type": ["integer", "null"]},
    "svg": ANYTHING,
    "images": {"type": ["array", "null"]},
}
DOCUMENT: Final[Schema] = {"type": ["string", "object"], "required": ["text"], "properties": {"text": TEXT}}
RANKED: Final[Schema] = shape(
    ("index", "relevance_score"), index=COUNT, relevance_score={"type": "number"}, document={"type": "object"}
)
COMPLETION: Final[Schema] = shape(("choices",), id=TEXT, object=TEXT, model=TEXT, choices={"type": "array"})
SCHEMAS: Final[Mapping[str, Schema]] = {
    "ChatCompletionRequest": shape(
        ("model", "messages"),
        model=MODEL,
        messages=MESSAGES,
        max_tokens=LIMIT,
        max_completion_tokens=LIMIT,
        n=CHOICES,
        tools=OBJECTS,
        functions=OBJECTS,
        tool_choice=ANYTHING,
        response_format=FORMAT,
        web_search_options=ANYTHING,
        search_parameters=ANYTHING,
        enable_search=ANYTHING,
        plugins=ANYTHING,
        **NAMED_MODELS,
        prediction=ANYTHING,
        **STREAMED,
    ),
    "ChatCompletion": COMPLETION,
    "CompletionRequest": shape(
        ("model",),
        model=MODEL,
        prompt=PLAIN_INPUT | {"type": [*PLAIN_INPUT["type"], "null"]},
        suffix=MAYBE_TEXT,
        max_tokens=LIMIT | {"minimum": 0},
        n=CHOICES,
        best_of=CHOICES,
        **NAMED_MODELS,
        **STREAMED,
    ),
    "Completion": COMPLETION,
    "EmbeddingRequest": shape(("model", "input"), model=MODEL, input=PLAIN_INPUT, **NAMED_MODELS),
    "Embeddings": shape(("data",), object=TEXT, model=TEXT, data={"type": "array", "items": {"type": "object"}}),
    "ResponsesRequest": shape(
        ("model",),
        model=MODEL,
        input={"type": ["string", "array"], "items": ITEM},
        instructions=MAYBE_TEXT,
        max_output_tokens=LIMIT,
        stream=FLAG,
        tools=OBJECTS,
        max_tool_calls=ANYTHING,
        tool_choice=ANYTHING,
        text=FORMATTED,
        service_tier=MAYBE_TEXT,
        previous_response_id=ANYTHING,
        conversation=ANYTHING,
        prompt=ANYTHING,
        plugins=ANYTHING,
        **NAMED_MODELS,
    ),
    "InputTokensRequest": shape(
        (),
        model=MAYBE_MODEL,
        input={"type": ["string", "array", "null"], "items": ITEM},
        instructions=MAYBE_TEXT,
        tools=OBJECTS,
        tool_choice=ANYTHING,
        text=FORMATTED,
        previous_response_id=ANYTHING,
        conversation=ANYTHING,
        prompt=ANYTHING,
    ),
    "CompactRequest": shape(
        ("model",),
        model=TEXT,
        input={"type": ["string", "array", "null"], "items": ITEM},
        instructions=MAYBE_TEXT,
        tools=OBJECTS,
        previous_response_id=ANYTHING,
        service_tier=ANYTHING,
    ),
    "Compaction": shape(
        ("id", "object", "created_at", "output", "usage"),
        id=TEXT,
        object={"const": "response.compaction"},
        created_at=COUNT,
        output={"type": "array", "items": {"type": "object"}},
        usage={"type": "object"},
    ),
    "InputTokens": shape(("object", "input_tokens"), object={"const": "response.input_tokens"}, input_tokens=COUNT),
    "Response": shape(
        ("id", "object", "status", "output"), id=TEXT, object={"const": "response"}, status=TEXT, output=OBJECTS
    ),
    "MessagesRequest": shape(
        ("model", "messages", "max_tokens"),
        max_tokens={"type": "integer", "minimum": 0, "maximum": 10_000_000},
        speed=ANYTHING,
        inference_geo=ANYTHING,
        service_tier=ANYTHING,
        models=ANYTHING,
        preset=ANYTHING,
        plugins=ANYTHING,
        **MESSAGE_TO_COUNT,
    ),
    "Message": shape(
        ("id", "type", "role", "content", "usage"),
        id=TEXT,
        type={"const": "message"},
        role={"const": "assistant"},
        content={"type": "array", "items": {"type": "object"}},
        usage={"type": "object"},
    ),
    "ModerationRequest": shape(
        ("input",),
        model=MAYBE_MODEL,
        input={"type": ["string", "array"], "items": {"type": ["string", "object"], "properties": PART["properties"]}},
    ),
    "Moderation": shape(("results",), id=TEXT, model=TEXT, results={"type": "array", "items": {"type": "object"}}),
    "RerankRequest": shape(
        ("query", "documents"),
        model=MAYBE_MODEL,
        query=TEXT,
        documents={"type": "array", "minItems": 1, "items": DOCUMENT},
        top_n=LIMIT,
        return_documents=FLAG,
        max_tokens_per_doc=LIMIT,
        rank_fields={"type": ["array", "null"], "items": {"const": "text"}},
    ),
    "Ranking": shape(("results",), results={"type": "array", "items": RANKED}),
    "ImageRequest": shape(("prompt",), **IMAGE),
    "Images": shape(("data",), created=COUNT, data={"type": "array", "items": {"type": "object"}}),
    "SpeechRequest": shape(("input",), model=MAYBE_MODEL, input=TEXT, instructions=MAYBE_TEXT),
    "Transcript": shape(("text",), text=TEXT),
    "CountRequest": shape(("model", "messages"), **MESSAGE_TO_COUNT),
    "Count": shape(("input_tokens",), input_tokens=COUNT),
    "MessagesError": shape(("type", "error"), type={"const": "error"}, error=shape(("type", "message"))),
    "Error": shape(
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
    "/v1/chat/completions": ("Create a chat completion.", "ChatCompletionRequest", "ChatCompletion"),
    "/v1/completions": ("Complete a text.", "CompletionRequest", "Completion"),
    "/v1/embeddings": ("Create embeddings of texts.", "EmbeddingRequest", "Embeddings"),
    "/v1/responses": ("Create a response (OpenAI's Responses API).", "ResponsesRequest", "Response"),
    "/v1/responses/compact": ("Compact a conversation (Responses API).", "CompactRequest", "Compaction"),
    "/v1/responses/input_tokens": ("Count input tokens (Responses API).", "InputTokensRequest", "InputTokens"),
    "/v1/images/generations": ("Generate images.", "ImageRequest", "Images"),
    "/v1/images/edits": ("Edit images.", "ImageRequest", "Images"),
    "/v1/audio/speech": ("Turn text into speech.", "SpeechRequest", ""),
    "/v1/audio/transcriptions": ("Transcribe speech.", "", "Transcript"),
    "/v1/audio/translations": ("Translate speech into English text.", "", "Transcript"),
    "/v1/moderations": ("Check texts or images for harmful content.", "ModerationRequest", "Moderation"),
    "/v1/rerank": ("Rank documents by relevance to a query.", "RerankRequest", "Ranking"),
    "/v1/messages": ("Create a message (Anthropic's Messages API).", "MessagesRequest", "Message"),
    "/v1/messages/count_tokens": ("Count input tokens (Messages API).", "CountRequest", "Count"),
}
RECORDING: Final[Schema] = shape(("file",), model=TEXT, file=FILE, prompt=TEXT, response_format=TEXT, stream=TEXT)
WRITTEN: Final[Mapping[str, Schema]] = {"text/plain": TEXT, "text/event-stream": {}}
FORMS: Final[Mapping[str, Schema]] = {
    "/v1/images/edits": shape(
        ("prompt", "image"), model=TEXT, prompt=TEXT, image=FILE, mask=FILE, n=COUNT, quality=TEXT, stream=TEXT
    ),
    "/v1/audio/transcriptions": RECORDING,
    "/v1/audio/translations": RECORDING,
}
"""Bodies sent as forms: an alternative to JSON, or the only format."""
ANSWERS: Final[Mapping[str, Mapping[str, Schema]]] = {
    "/v1/audio/speech": {"audio/*": FILE, "application/octet-stream": FILE, "text/event-stream": {}},
    "/v1/audio/transcriptions": WRITTEN,
    "/v1/audio/translations": WRITTEN,
}
"""Response types besides JSON."""
ERRORS: Final[Mapping[str, str]] = {
    "400": "The body is not valid for this endpoint, or no model can serve it as it is.",
    "401": "The API key is missing or unknown.",
    "403": "The key may not call models.",
    "404": "The model does not exist, or the key may not use it.",
    "408": "The body did not arrive in time.",
    "413": "The body is too large.",
    "415": "The body's content-encoding is not supported.",
    "422": "The idempotency key was already used with a different request.",
    "429": "A rate limit or budget is used up, or the backend is full. `x-should-retry: false`: waiting does not help.",
    "502": "Every model that was tried failed.",
    "503": "No model can serve the request now, or the gateway is overloaded.",
    "504": "No model answered in time.",
}
FAILED: Final[Mapping[str, str]] = {"/v1/messages": "MessagesError", "/v1beta/": "GoogleError"}
"""Error formats other than OpenAI's, by path prefix."""
HEADERS: Final[Mapping[str, tuple[Schema, str]]] = {
    "x-breakeven-tags": (
        {"type": "string", "pattern": "^[a-z0-9,-]{0,64}$"},
        "Comma-separated tags, for rules and reports.",
    ),
    "x-breakeven-cache": (
        {"type": "string", "pattern": "^(on|off|[0-9]{1,6})$"},
        "Use of the response cache: on, off, or for how many seconds an answer may be reused.",
    ),
    "idempotency-key": (
        {"type": "string", "pattern": "^[A-Za-z0-9-]{1,64}$"},
        "Identical requests with the same key are served once; all of them get that answer.",
    ),
}


def complete_document(document: dict[str, Any]) -> dict[str, Any]:
    """FastAPI's document plus the model endpoints, with our own errors in place of FastAPI's."""
    components = document.setdefault("components", {})
    components.setdefault("schemas", {}).update({**SCHEMAS, **CONTENT_SCHEMAS})
    components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    document["security"] = [{"key": []}]  # for all operations: /docs sends the key only to those that declare it
    for path in document["paths"].values():
        for operation in path.values():
            _summarise(operation)
            if "health" in operation.get("tags", ()):
                operation["security"] = []
            operation["responses"].pop("422", None)
            operation["responses"]["4XX"] = {
                "description": "The request was refused; the message says why.",
                "content": {"application/json": _reference("Error")},
            }
    for path, (summary, request, response) in ENDPOINTS.items():
        document["paths"][path] = {"post": _operation(path, summary, request, response)}
    for path, (summary, request, response) in CONTENT_ENDPOINTS.items():
        document["paths"][path] = {"post": _content_operation(path, summary, request, response)}
    return document


def _summarise(operation: Schema) -> None:
    """Makes the first sentence of the handler's docstring the summary; FastAPI's would be the function's name."""
    first, _, rest = operation.pop("description").replace("\n", " ").partition(". ")
    operation["summary"] = first.removesuffix(".") + "."
    if rest:
        operation["description"] = rest


def _content_operation(path: str, summary: str, request: str, response: str) -> Schema:
    """In Gemini's format: the model is part of the path, and only one path streams."""
    described = _operation(path, summary, request, response)
    described["operationId"] = path.rpartition(":")[2]
    described["parameters"] = [MODEL_PARAMETER, *described["parameters"]]
    if not response:
        described["parameters"].append(ALT_PARAMETER)
        described["responses"]["200"]["content"] = dict(STREAMED_CONTENT)
    return described


def _operation(path: str, summary: str, request: str, response: str) -> Schema:
    answers: dict[str, Schema] = {"application/json": _reference(response)} if response else {}
    answers |= {kind: {"schema": schema} if schema else {} for kind, schema in ANSWERS.get(path, {}).items()}
    bodies: dict[str, Schema] = {"application/json": _reference(request)} if request else {}
    if path in FORMS:
        bodies["multipart/form-data"] = {"schema": FORMS[path]}
    if request in SCHEMAS and "stream" in SCHEMAS[request]["properties"]:
        answers["text/event-stream"] = {}  # OpenAPI 3.1 cannot describe a stream: a schema would mean each event's
    failed = _reference(next((name for start, name in FAILED.items() if path.startswith(start)), "Error"))
    return {
        "tags": ["models"],
        "summary": summary,
        "operationId": path.removeprefix("/v1/").replace("/", "_"),
        "parameters": [
            {"name": name, "in": "header", "required": False, "schema": schema, "description": text}
            for name, (schema, text) in HEADERS.items()
        ],
        "requestBody": {"required": True, "content": bodies},
        "responses": {
            "200": {"description": "The answer; a stream of events if `stream` is true.", "content": answers},
            **{
                status: {"description": text, "content": {"application/json": failed}}
                for status, text in ERRORS.items()
            },
        },
    }


def _reference(name: str) -> Schema:
    return {"schema": {"$ref": f"#/components/schemas/{name}"}}
