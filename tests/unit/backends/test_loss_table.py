"""Checks every row of the loss table in docs/translation.md against the translators."""

import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from anthropic.types.beta.message_create_params import MessageCreateParamsBase
from openai.types.chat.completion_create_params import CompletionCreateParamsBase
from openai.types.responses.response_create_params import ResponseCreateParamsBase

from backends.dialects import ABOUT_REASONING
from backends.endpoints.content_format import chat_from_content
from backends.endpoints.custom_calls import with_functions
from backends.endpoints.messages_format import chat_body_from_messages
from backends.errors import UpstreamRejected
from backends.formats.anthropic_request import build_messages_body
from backends.formats.chat_view import parse_chat
from backends.formats.efforts import with_effort_alone
from backends.formats.gemini import build_content_body
from backends.formats.responses_request import build_response_body
from backends.protocol import Call

Json = dict[str, object]
DOCUMENT = Path(__file__).parents[3] / "docs" / "translation.md"
HELLO: list[Json] = [{"role": "user", "content": "hi"}]
HI: Json = {"messages": HELLO}
FUNCTION: Json = {"name": "f", "parameters": {"type": "object", "properties": {}}}
TOOL: Json = {"type": "function", "function": FUNCTION}
TOOLS: Json = {"tools": [TOOL]}
IMAGE: Json = {"type": "image_url", "image_url": {"url": "https://x/y.png"}}
TOLD: Json = {"type": "text", "text": "hi"}
CUSTOM_CALL: Json = {"id": "c", "type": "custom", "custom": {"name": "f", "input": "x"}}


def ask(*parts: Json) -> Json:
    return {"messages": [{"role": "user", "content": list(parts)}]}


def answered(content: object) -> Json:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    result = {"role": "tool", "tool_call_id": "c", "content": content}
    return {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "tool_calls": [call]}, result]}


# A request without the field, and what is added to set it.
SAMPLES: dict[str, tuple[Json, Json]] = {
    "max_tokens": (HI, {"max_tokens": 5}),
    "max_completion_tokens": (HI, {"max_completion_tokens": 5}),
    "temperature": (HI, {"temperature": 0.5}),
    "top_p": (HI, {"top_p": 0.5}),
    "stop": (HI, {"stop": ["x"]}),
    "tools": (HI, TOOLS),
    "functions": (HI, {"functions": [FUNCTION]}),
    "function_call": (HI | {"functions": [FUNCTION]}, {"function_call": {"name": "f"}}),
    "tool_choice": (HI | TOOLS, {"tool_choice": "required"}),
    "parallel_tool_calls": (HI | TOOLS, {"parallel_tool_calls": False}),
    "response_format": (
        HI,
        {"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "object"}}}},
    ),
    "reasoning_effort": (HI, {"reasoning_effort": "low"}),
    "user": (HI, {"user": "u"}),
    "service_tier": (HI, {"service_tier": "default"}),
    "seed": (HI, {"seed": 1}),
    "presence_penalty": (HI, {"presence_penalty": 1}),
    "frequency_penalty": (HI, {"frequency_penalty": 1}),
    "logit_bias": (HI, {"logit_bias": {"5": 1}}),
    "logprobs": (HI, {"logprobs": True}),
    "top_logprobs": (HI, {"top_logprobs": 2}),
    "metadata": (HI, {"metadata": {"a": "b"}}),
    "store": (HI, {"store": True}),
    "verbosity": (HI, {"verbosity": "low"}),
    "prediction": (HI, {"prediction": {"type": "content", "content": "x"}}),
    "prompt_cache_key": (HI, {"prompt_cache_key": "k"}),
    "prompt_cache_options": (HI, {"prompt_cache_options": {"mode": "explicit"}}),
    "prompt_cache_retention": (HI, {"prompt_cache_retention": "24h"}),
    "cache breakpoint of a part": (ask(TOLD), ask(TOLD | {"prompt_cache_breakpoint": {"ttl": "1h"}})),
    "cache mark of a message": (HI, {"messages": [HELLO[0] | {"cache_control": {"type": "ephemeral"}}]}),
    "cache mark of a part": (ask(TOLD), ask(TOLD | {"cache_control": {"type": "ephemeral"}})),
    "cache mark of a tool": (HI | TOOLS, {"tools": [TOOL | {"cache_control": {"type": "ephemeral"}}]}),
    "detail of an image": (
        ask(IMAGE),
        ask({"type": "image_url", "image_url": {"url": "https://x/y.png", "detail": "low"}}),
    ),
    "strictness of a function": (
        HI | TOOLS,
        {"tools": [{"type": "function", "function": FUNCTION | {"strict": True}}]},
    ),
    "safety_identifier": (HI, {"safety_identifier": "u"}),
    "thinking": (HI, {"thinking": {"type": "enabled", "budget_tokens": 1024}}),
    "any other field": (HI, {"provider": {"order": ["x"]}}),
    "n": (HI, {"n": 2}),
    "web_search_options": (HI, {"web_search_options": {}}),
    "modalities": (HI, {"modalities": ["text", "audio"]}),
    "audio": (HI, {"audio": {"voice": "alloy", "format": "wav"}}),
    "moderation": (HI, {"moderation": {"policy": {"output": {"mode": "block"}}}}),
    "hosted tool": (HI, {"tools": [{"type": "web_search"}]}),
    "custom tool, and its calls": (HI, {"messages": [*HELLO, {"role": "assistant", "tool_calls": [CUSTOM_CALL]}]}),
    "what was said aloud before": (HI, {"messages": [*HELLO, {"role": "assistant", "audio": {"id": "a"}}]}),
    "file by id": (HI, ask({"type": "file", "file": {"file_id": "f"}})),
    "audio in": (HI, ask({"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}})),
    "image in a tool's result": (answered("x"), answered([IMAGE])),
}


MESSAGE: Json = {"model": "m", "max_tokens": 9} | HI
OWN_TOOL: Json = {"name": "f", "input_schema": {"type": "object"}}
SEARCH: Json = {"type": "web_search_20250305", "name": "web_search"}
PDF: Json = {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}
THOUGHT: Json = {"type": "thinking", "thinking": "hm", "signature": "s"}
SAID: Json = {"type": "text", "text": "hi"}
PAPER: Json = {"type": "document", "source": PDF}
PICTURE: Json = {"type": "image", "source": {"type": "url", "url": "https://x/y.png"}}


def assistant(*blocks: Json) -> Json:
    return {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": list(blocks)}]}


MESSAGE_SAMPLES: dict[str, tuple[Json, Json]] = {
    "system": (MESSAGE, {"system": "be brief"}),
    "temperature": (MESSAGE, {"temperature": 0.5}),
    "top_p": (MESSAGE, {"top_p": 0.5}),
    "stop_sequences": (MESSAGE, {"stop_sequences": ["x"]}),
    "max_tokens: 0": (MESSAGE, {"max_tokens": 0}),
    "metadata.user_id": (MESSAGE, {"metadata": {"user_id": "u"}}),
    "tools": (MESSAGE, {"tools": [OWN_TOOL]}),
    "tool_choice": (MESSAGE | {"tools": [OWN_TOOL]}, {"tool_choice": {"type": "any"}}),
    "output_config.format": (MESSAGE, {"output_config": {"format": {"type": "json_schema", "schema": {}}}}),
    "output_format": (MESSAGE, {"output_format": {"type": "json_schema", "schema": {}}}),
    "cache_control": (MESSAGE | ask(SAID), ask(SAID | {"cache_control": {"type": "ephemeral"}})),
    "image": (MESSAGE, ask({"type": "image", "source": {"type": "url", "url": "https://x/y.png"}})),
    "inline document": (MESSAGE, ask({"type": "document", "source": PDF})),
    "context of a document": (MESSAGE | ask(PAPER), ask(PAPER | {"context": "a letter"})),
    "citations of a document": (MESSAGE | ask(PAPER), ask(PAPER | {"citations": {"enabled": True}})),
    "transformations of an image": (
        MESSAGE | ask(PICTURE),
        ask(PICTURE | {"transformations": {"oversized_image": "x"}}),
    ),
    "tool result": (MESSAGE, ask({"type": "tool_result", "tool_use_id": "t", "content": "one"})),
    "thinking": (MESSAGE, {"thinking": {"type": "enabled", "budget_tokens": 1024}}),
    "output_config.effort": (MESSAGE, {"output_config": {"effort": "low"}}),
    "system's message that says nothing": (
        MESSAGE,
        {"messages": [{"role": "user", "content": "hi"}, {"role": "system", "output_config": {"effort": "low"}}]},
    ),
    "top_k": (MESSAGE, {"top_k": 3}),
    "service_tier": (MESSAGE, {"service_tier": "auto"}),
    "service tier that Anthropic does not have (`priority`)": (MESSAGE, {"service_tier": "priority"}),
    "past thinking": (MESSAGE | assistant(SAID), assistant(THOUGHT, SAID)),
    "container": (MESSAGE, {"container": "c"}),
    "context_management": (MESSAGE, {"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}}),
    "deferred tool": (MESSAGE | {"tools": [OWN_TOOL]}, {"tools": [OWN_TOOL | {"defer_loading": True}]}),
    "tool that a search found": (
        MESSAGE | ask({"type": "tool_result", "tool_use_id": "t", "content": []}),
        ask({"type": "tool_result", "tool_use_id": "t", "content": [{"type": "tool_reference", "tool_name": "f"}]}),
    ),
    "tools added and removed in messages": (
        MESSAGE | ask(SAID),
        ask(SAID, {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": OWN_TOOL}}),
    ),
    "examples of a tool's input": (
        MESSAGE | {"tools": [OWN_TOOL]},
        {"tools": [OWN_TOOL | {"input_examples": [{}], "allowed_callers": ["direct"], "eager_input_streaming": True}]},
    ),
    "diagnostics": (MESSAGE, {"diagnostics": {"previous_message_id": "msg_1"}}),
    "mark of a fallback": (
        MESSAGE | assistant(SAID),
        assistant({"type": "fallback", "from": {"model": "m"}, "to": {"model": "n"}}, SAID),
    ),
    "fallbacks": (MESSAGE, {"fallbacks": [{"model": "n"}]}),
    "fallback_credit_token": (MESSAGE, {"fallback_credit_token": "t"}),
    "speed": (MESSAGE, {"speed": "fast"}),
    "mcp_servers": (MESSAGE, {"mcp_servers": [{"type": "url", "name": "s", "url": "https://x/mcp"}]}),
    "thread.create": (MESSAGE, {"thread": {"type": "create"}}),
    "thread.continue": (MESSAGE, {"thread": {"type": "continue", "previous_message_id": "msg_1"}}),
    "compaction": (MESSAGE, {"compaction": {"instructions": "briefly"}}),
    "inference_geo": (MESSAGE, {"inference_geo": "us"}),
    "billing_policy": (MESSAGE, {"billing_policy": {"type": "billing_policy", "bill_to": "user_profile"}}),
    "server tool": (MESSAGE, {"tools": [SEARCH]}),
    "block of a server tool": (
        MESSAGE,
        assistant({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}),
    ),
    "search result": (MESSAGE, ask({"type": "search_result", "source": "https://x", "title": "t", "content": [SAID]})),
    "document by address": (MESSAGE, ask({"type": "document", "source": {"type": "url", "url": "https://x/y.pdf"}})),
    "file by id": (MESSAGE, ask({"type": "document", "source": {"type": "file", "file_id": "f"}})),
    "assistant's message at the end": (MESSAGE, assistant(SAID)),
}


GREETING: Json = {"contents": [{"parts": [{"text": "hi"}]}]}
DECLARED: Json = {"functionDeclarations": [{"name": "f", "parameters": {"type": "OBJECT"}}]}
FORM = {"responseMimeType": "application/json"}
CALLED: list[Json] = [
    {"parts": [{"text": "hi"}]},
    {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}}]},
    {"parts": [{"functionResponse": {"name": "f", "response": {}}}]},
]


def config(**fields: object) -> Json:
    return {"generationConfig": fields}


def shown(*parts: Json, role: str = "user") -> Json:
    return {"contents": [{"parts": [{"text": "hi"}]}, {"role": role, "parts": list(parts)}]}


def inline(kind: str) -> Json:
    return shown({"inlineData": {"mimeType": kind, "data": "YQ=="}})


def by_address(address: str) -> Json:
    return shown({"fileData": {"fileUri": address}})


CONTENT_SAMPLES: dict[str, tuple[Json, Json]] = {
    "systemInstruction": (GREETING, {"systemInstruction": {"parts": [{"text": "be brief"}]}}),
    "tools.functionDeclarations": (GREETING, {"tools": [DECLARED]}),
    "functionDeclarations.response": (
        GREETING | {"tools": [DECLARED]},
        {"tools": [{"functionDeclarations": [{"name": "f", "parameters": {"type": "OBJECT"}, "response": {}}]}]},
    ),
    "toolConfig.functionCallingConfig": (
        GREETING | {"tools": [DECLARED]},
        {"toolConfig": {"functionCallingConfig": {"mode": "ANY"}}},
    ),
    "toolConfig.retrievalConfig": (
        GREETING | {"tools": [DECLARED]},
        {"toolConfig": {"retrievalConfig": {"languageCode": "de"}}},
    ),
    "generationConfig.temperature": (GREETING, config(temperature=0.5)),
    "generationConfig.topP": (GREETING, config(topP=0.5)),
    "generationConfig.topK": (GREETING, config(topK=3)),
    "generationConfig.candidateCount": (GREETING, config(candidateCount=2)),
    "generationConfig.maxOutputTokens": (GREETING, config(maxOutputTokens=5)),
    "generationConfig.stopSequences": (GREETING, config(stopSequences=["x"])),
    "generationConfig.responseLogprobs": (GREETING, config(responseLogprobs=True)),
    "generationConfig.logprobs": (GREETING | config(responseLogprobs=True), config(responseLogprobs=True, logprobs=2)),
    "generationConfig.presencePenalty": (GREETING, config(presencePenalty=1)),
    "generationConfig.frequencyPenalty": (GREETING, config(frequencyPenalty=1)),
    "generationConfig.seed": (GREETING, config(seed=7)),
    "generationConfig.responseMimeType": (GREETING, config(**FORM)),
    "generationConfig.responseSchema": (GREETING | config(**FORM), config(**FORM, responseSchema={"type": "OBJECT"})),
    "generationConfig.responseJsonSchema": (
        GREETING | config(**FORM),
        config(**FORM, responseJsonSchema={"type": "object"}),
    ),
    "generationConfig.thinkingConfig": (GREETING, config(thinkingConfig={"thinkingBudget": 0})),
    "generationConfig.mediaResolution": (GREETING, config(mediaResolution="MEDIA_RESOLUTION_LOW")),
    "generationConfig.enableEnhancedCivicAnswers": (GREETING, config(enableEnhancedCivicAnswers=True)),
    "generationConfig.responseModalities": (GREETING, config(responseModalities=["TEXT", "IMAGE"])),
    "generationConfig.speechConfig": (GREETING, config(speechConfig={"languageCode": "de-DE"})),
    "generationConfig.imageConfig": (GREETING, config(imageConfig={"aspectRatio": "1:1"})),
    "generationConfig.audioTranscriptionConfig": (GREETING, config(audioTranscriptionConfig={"x": 1})),
    "continuationToken": (GREETING, {"continuationToken": "t"}),
    "safetySettings": (GREETING, {"safetySettings": [{"category": "C", "threshold": "BLOCK_NONE"}]}),
    "cachedContent": (GREETING, {"cachedContent": "cachedContents/1"}),
    "serviceTier": (GREETING, {"serviceTier": "FLEX"}),
    "labels": (GREETING, {"labels": {"a": "b"}}),
    "store": (GREETING, {"store": True}),
    "function call and response": (GREETING, {"contents": CALLED}),
    "inline image": (GREETING, inline("image/png")),
    "inline sound": (GREETING, inline("audio/wav")),
    "inline PDF": (GREETING, inline("application/pdf")),
    "inline text": (GREETING, inline("text/csv")),
    "inline film": (GREETING, inline("video/mp4")),
    "image by address": (GREETING, by_address("https://x/y.png")),
    "document by address": (GREETING, by_address("https://x/y.pdf")),
    "file kept at Google": (GREETING, by_address("https://generativelanguage.googleapis.com/v1beta/files/1.png")),
    "past thinking": (
        GREETING | shown({"text": "hi"}, role="model"),
        shown({"text": "hm", "thought": True}, {"text": "hi"}, role="model"),
    ),
    "videoMetadata": (
        GREETING | inline("image/png"),
        shown({"inlineData": {"mimeType": "image/png", "data": "YQ=="}, "videoMetadata": {"fps": 1}}),
    ),
    "code that Google ran": (GREETING, shown({"executableCode": {"code": "1"}}, role="model")),
    "googleSearch": (GREETING, {"tools": [{"googleSearch": {}}]}),
    "urlContext": (GREETING, {"tools": [{"urlContext": {}}]}),
    "codeExecution": (GREETING, {"tools": [{"codeExecution": {}}]}),
    "any other tool": (GREETING, {"tools": [{"googleMaps": {}}]}),
}


def translate(kind: str, body: Json) -> object:
    raw = json.dumps(body).encode()
    if kind != "anthropic":  # which has a `thinking` of its own
        raw = with_effort_alone(raw, ABOUT_REASONING)
    call = Call("chat.completions", "m", raw, False, "r-1")
    if kind == "responses":
        return json.loads(build_response_body(call, backend="b", models_think=True))
    if made := with_functions(raw):  # as for every model that has no custom tools
        raw = made.body
    view = parse_chat(raw)
    return json.loads(build_messages_body(view, call) if kind == "anthropic" else build_content_body(view, "m"))


def from_messages(body: Json) -> bytes:
    return chat_body_from_messages(json.dumps(body).encode(), reasons=True)


def from_content(body: Json) -> bytes:
    return chat_from_content(json.dumps(body).encode(), model="m", is_stream=False, takes_effort=True).body


Translate = Callable[[Json], object]
TABLES: dict[str, tuple[dict[str, tuple[Json, Json]], tuple[Translate, ...]]] = {
    "| OpenAI field | anthropic | gemini | responses |": (
        SAMPLES,
        (partial(translate, "anthropic"), partial(translate, "gemini"), partial(translate, "responses")),
    ),
    "| Messages field | as a chat |": (MESSAGE_SAMPLES, (from_messages,)),
    "| Gemini's field | as a chat |": (CONTENT_SAMPLES, (from_content,)),
}
"""By their heads in the document: the samples of the rows, and what is told of in each column."""


def cells_under(head: str) -> list[list[str]]:
    lines = DOCUMENT.read_text(encoding="utf-8").splitlines()
    start = lines.index(head)
    table = [line for line in lines[start + 2 : lines.index("", start)] if line.startswith("|")]
    return [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in table]


def fate_of(column: Translate, without: Json, added: Json) -> str:
    try:
        said = column(without | added)
    except UpstreamRejected:
        return "refused"
    return "dropped" if said == column(without) else "translated"


@pytest.mark.parametrize(
    ("head", "field", "fates"), [(head, row[0], row[1:]) for head in TABLES for row in cells_under(head)]
)
def test_every_row_is_true(head: str, field: str, fates: list[str]) -> None:
    samples, columns = TABLES[head]
    assert [fate_of(column, *samples[field]) for column in columns] == fates


@pytest.mark.parametrize("head", TABLES)
def test_no_sample_is_left_out_of_its_table(head: str) -> None:
    assert [field for field, *_ in cells_under(head)] == list(TABLES[head][0])


IN_HEADERS = {"betas", "user_profile_id", "workspace_id"}
"""Arguments of Anthropic's client that it sends as headers."""


@pytest.mark.parametrize(
    ("fields", "said_otherwise", "table"),
    [
        (CompletionCreateParamsBase, {"model", "messages", "stream_options"}, SAMPLES),
        (MessageCreateParamsBase, {"model", "messages", "max_tokens"} | IN_HEADERS, MESSAGE_SAMPLES),
    ],
)
def test_every_field_that_the_official_client_knows_has_its_row(
    fields: type, said_otherwise: set[str], table: dict[str, object]
) -> None:
    assert set(fields.__annotations__) - said_otherwise <= {field.partition(".")[0] for field in table}


def test_every_field_of_a_response_that_the_official_client_knows_is_spoken_of() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    section = text[text.index("| Responses field |") :]
    told = set(re.findall(r"[a-z_]+", " ".join(re.findall(r"`([^`]+)`", section))))
    assert set(ResponseCreateParamsBase.__annotations__) - {"model"} <= told
