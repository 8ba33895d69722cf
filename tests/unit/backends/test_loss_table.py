"""Tries every row of the loss table in docs/backends.md: the documentation and the translators say the same."""

import json
from pathlib import Path

import pytest

from backends.anthropic_format import build_messages_body
from backends.chat_view import parse_chat
from backends.errors import UpstreamRejected
from backends.gemini_format import build_content_body
from backends.protocol import Call

Json = dict[str, object]
DOCUMENT = Path(__file__).parents[3] / "docs" / "backends.md"
HI: Json = {"messages": [{"role": "user", "content": "hi"}]}
FUNCTION: Json = {"name": "f", "parameters": {"type": "object", "properties": {}}}
TOOLS: Json = {"tools": [{"type": "function", "function": FUNCTION}]}
IMAGE: Json = {"type": "image_url", "image_url": {"url": "https://x/y.png"}}


def ask(*parts: Json) -> Json:
    return {"messages": [{"role": "user", "content": list(parts)}]}


def answered(content: object) -> Json:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    result = {"role": "tool", "tool_call_id": "c", "content": content}
    return {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "tool_calls": [call]}, result]}


# What is asked without the field, and what is added to say it.
SAMPLES: dict[str, tuple[Json, Json]] = {
    "max_tokens": (HI, {"max_tokens": 5}),
    "max_completion_tokens": (HI, {"max_completion_tokens": 5}),
    "temperature": (HI, {"temperature": 0.5}),
    "top_p": (HI, {"top_p": 0.5}),
    "stop": (HI, {"stop": ["x"]}),
    "tools": (HI, TOOLS),
    "functions": (HI, {"functions": [FUNCTION]}),
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
    "n": (HI, {"n": 2}),
    "modalities": (HI, {"modalities": ["text", "audio"]}),
    "hosted tool": (HI, {"tools": [{"type": "web_search"}]}),
    "file by id": (HI, ask({"type": "file", "file": {"file_id": "f"}})),
    "audio in": (HI, ask({"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}})),
    "image in a tool's result": (answered("x"), answered([IMAGE])),
}


def rows() -> list[tuple[str, str, str]]:
    """(field, format, fate) of every cell."""
    lines = DOCUMENT.read_text(encoding="utf-8").splitlines()
    start = lines.index("| OpenAI field | anthropic | gemini |")
    table = [line for line in lines[start + 2 : lines.index("", start)] if line.startswith("|")]
    cells = [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in table]
    return [
        (field, kind, fate)
        for field, *fates in cells
        for kind, fate in zip(("anthropic", "gemini"), fates, strict=True)
    ]


def translate(kind: str, body: Json) -> object:
    raw = json.dumps(body).encode()
    view = parse_chat(raw)
    call = Call("chat.completions", "m", raw, False, "r-1")
    return json.loads(build_messages_body(view, call) if kind == "anthropic" else build_content_body(view))


def fate_of(kind: str, field: str) -> str:
    without, added = SAMPLES[field]
    try:
        said = translate(kind, without | added)
    except UpstreamRejected:
        return "refused"
    return "dropped" if said == translate(kind, without) else "translated"


@pytest.mark.parametrize(("field", "kind", "fate"), rows())
def test_every_row_is_true(field: str, kind: str, fate: str) -> None:
    assert fate_of(kind, field) == fate


def test_no_sample_is_left_out_of_the_table() -> None:
    assert {field for field, _, _ in rows()} == set(SAMPLES)
