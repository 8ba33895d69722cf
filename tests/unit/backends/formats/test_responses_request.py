"""Chats translated to Responses API requests: which ones are, and how."""

import json

import pytest
from msgspec.structs import replace

from backends.errors import Untranslatable, UpstreamRejected
from backends.formats.responses_request import build_response_body, is_asked_as_response
from tests.unit.backends.formats.responses_calls import FUNCTION, HI, PRO, SCHEMA, Json, built, make_call

TOOL: Json = {"type": "function", "function": FUNCTION}
TOOLS: Json = {"tools": [TOOL]}
FLAT: Json = {"type": "function", **FUNCTION, "strict": False}
CUSTOM: Json = {"type": "custom", "custom": {"name": "c", "description": "Runs."}}
GRAMMAR: Json = {"syntax": "regex", "definition": "a+"}


AS_RESPONSE: list[tuple[str, Json, bool]] = [
    # what answers no chats, whatever is asked
    ("gpt-5-pro", {}, True),
    ("gpt-5.3-codex", TOOLS, True),
    ("o3-deep-research", {}, True),
    ("gpt-5-pro", {"model": "gpt-5-pro"}, True),
    # a model that always thinks calls functions there alone
    ("gpt-6.1-sol", {}, False),
    ("gpt-6.1-sol", TOOLS, True),
    ("gpt-6.1-sol", TOOLS | {"reasoning_effort": "none"}, True),
    ("gpt-6.1-sol", TOOLS | {"model": "gpt-6.1-sol"}, True),
    ("gpt-6.1-sol", {"tools": [CUSTOM]}, False),
    ("gpt-6.1-sol", {"tools": []}, False),
    ("gpt-6.1-sol", {"messages": [{"role": "user", "content": '"function"'}]}, False),
    # one that need not think does where it is told to
    ("gpt-6-luna", TOOLS, False),
    ("gpt-6-luna", TOOLS | {"reasoning_effort": "none"}, False),
    ("gpt-6-luna", TOOLS | {"reasoning_effort": "high"}, True),
    ("gpt-5.4-mini", TOOLS | {"reasoning_effort": "minimal"}, True),
    # and in OpenAI's own words thinks as hard as it does by itself
    ("gpt-6-luna", TOOLS | {"model": "gpt-6-luna"}, True),
    ("gpt-6-luna", TOOLS | {"model": "gpt-6-luna", "reasoning_effort": "none"}, False),
    ("gpt-5.4-mini", TOOLS | {"model": "gpt-5.4-mini"}, False),
    ("gpt-5.4-mini", TOOLS | {"model": "gpt-5.4-mini", "reasoning_effort": "low"}, True),
    # before 5.4 they call functions while they think
    ("gpt-5.2", TOOLS | {"reasoning_effort": "high"}, False),
    ("o3", TOOLS, False),
    ("gpt-4o", TOOLS, False),
]


@pytest.mark.parametrize(("upstream", "body", "expected"), AS_RESPONSE)
def test_which_chats_are_asked_as_responses(upstream: str, body: Json, expected: bool) -> None:
    assert is_asked_as_response(make_call(upstream=upstream, **body), models_think=True) is expected


def test_what_was_translated_was_not_said_in_openais_words() -> None:
    call = make_call("gpt-6-luna", upstream="gpt-6-luna", translated=True, **TOOLS)
    assert not is_asked_as_response(call, models_think=True)


def test_elsewhere_only_those_that_answer_no_chats_are() -> None:
    assert not is_asked_as_response(make_call(upstream="gpt-6.1-sol", **TOOLS), models_think=False)
    assert is_asked_as_response(make_call(upstream="gpt-5-codex"), models_think=False)


FIXED: Json = {"model": PRO, "store": False, "stream": False, "include": ["reasoning.encrypted_content"]}
ASKED: list[tuple[Json, Json]] = [
    ({}, {}),
    ({"max_tokens": 500}, {"max_output_tokens": 500}),
    ({"max_tokens": 500, "max_completion_tokens": 700}, {"max_output_tokens": 700}),
    ({"max_completion_tokens": 1}, {"max_output_tokens": 16}),
    ({"max_tokens": None, "n": 1, "stop": None, "modalities": ["text"]}, {}),
    ({"reasoning_effort": "high"}, {"reasoning": {"effort": "high", "summary": "auto"}}),
    ({"reasoning_effort": "low"}, {"reasoning": {"effort": "medium", "summary": "auto"}}),
    ({"verbosity": "low"}, {"text": {"verbosity": "low"}}),
    ({"temperature": 0.2, "top_p": 0.9, "logprobs": True, "top_logprobs": 2}, {}),
    ({"seed": 1, "logit_bias": {"5": 1}, "presence_penalty": 1, "store": True, "prediction": {}}, {}),
    (
        {
            "metadata": {"a": "b"},
            "parallel_tool_calls": False,
            "prompt_cache_key": "k",
            "prompt_cache_options": {"ttl": "30m"},
            "prompt_cache_retention": "24h",
            "safety_identifier": "s",
            "service_tier": "flex",
            "user": "u",
        },
        {
            "metadata": {"a": "b"},
            "parallel_tool_calls": False,
            "prompt_cache_key": "k",
            "prompt_cache_options": {"ttl": "30m"},
            "prompt_cache_retention": "24h",
            "safety_identifier": "s",
            "service_tier": "flex",
            "user": "u",
        },
    ),
    (TOOLS, {"tools": [FLAT]}),
    ({"tools": [{"type": "function", "function": FUNCTION | {"strict": True}}]}, {"tools": [FLAT | {"strict": True}]}),
    (
        {"tools": [{"type": "function", "function": {"name": "g"}}]},
        {
            "tools": [
                {"type": "function", "name": "g", "parameters": {"type": "object", "properties": {}}, "strict": False}
            ]
        },
    ),
    (
        {"functions": [FUNCTION], "function_call": {"name": "f"}},
        {"tools": [FLAT], "tool_choice": {"type": "function", "name": "f"}},
    ),
    ({"tools": [CUSTOM]}, {"tools": [{"type": "custom", "name": "c", "description": "Runs."}]}),
    (
        {"tools": [{"type": "custom", "custom": {"name": "c", "format": {"type": "grammar", "grammar": GRAMMAR}}}]},
        {"tools": [{"type": "custom", "name": "c", "format": {"type": "grammar", **GRAMMAR}}]},
    ),
    (TOOLS | {"tool_choice": "required"}, {"tools": [FLAT], "tool_choice": "required"}),
    (TOOLS | {"tool_choice": TOOL}, {"tools": [FLAT], "tool_choice": {"type": "function", "name": "f"}}),
    (
        {"tools": [CUSTOM], "tool_choice": CUSTOM},
        {
            "tools": [{"type": "custom", "name": "c", "description": "Runs."}],
            "tool_choice": {"type": "custom", "name": "c"},
        },
    ),
    (
        TOOLS | {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [TOOL]}}},
        {
            "tools": [FLAT],
            "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]},
        },
    ),
    ({"response_format": {"type": "text"}}, {}),
    ({"response_format": {"type": "json_object"}}, {"text": {"format": {"type": "json_object"}}}),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA, "strict": True}}},
        {"text": {"format": {"type": "json_schema", "name": "x", "schema": SCHEMA, "strict": True}}},
    ),
    (
        {"response_format": {"type": "json", "value": SCHEMA}, "verbosity": "high"},
        {"text": {"format": {"type": "json_schema", "name": "answer", "schema": SCHEMA}, "verbosity": "high"}},
    ),
]


@pytest.mark.parametrize(("body", "expected"), ASKED)
def test_fields(body: Json, expected: Json) -> None:
    assert built(make_call(**body)) == FIXED | {"input": [HI]} | expected


def test_no_summary_is_asked_where_none_is_told() -> None:
    assert built(make_call(reasoning_effort="high"), tells_summary=False)["reasoning"] == {"effort": "high"}
    assert built(make_call(upstream="gpt-5.3-codex", reasoning_effort="none"))["reasoning"] == {"effort": "none"}


def test_a_stream_hides_its_length_as_the_caller_wishes() -> None:
    options = {"include_usage": True, "include_obfuscation": False}
    body = built(make_call(stream=True, stream_options=options))
    assert (body["stream"], body["stream_options"]) == (True, {"include_obfuscation": False})
    assert "stream_options" not in built(make_call(stream=True, stream_options={"include_usage": True}))


def test_openais_own_words_are_passed_on_as_they_are() -> None:
    named = make_call(PRO, temperature=0.2, logprobs=True, top_logprobs=1, reasoning_effort="low")
    body = built(named)
    assert (body["temperature"], body["top_logprobs"], body["reasoning"]["effort"]) == (0.2, 1, "low")
    assert body["include"] == ["reasoning.encrypted_content", "message.output_text.logprobs"]
    assert "temperature" not in built(replace(named, is_translated=True))


def test_whoever_serves_them_models_that_answer_no_chats_are_told_no_more_than_they_take() -> None:
    call = make_call(upstream="gpt-5.1-codex", temperature=0.2, reasoning_effort="minimal")
    body = json.loads(build_response_body(call, backend="azure", models_think=False))
    assert (body["reasoning"]["effort"], "temperature" in body) == ("low", False)
    body = json.loads(build_response_body(replace(call, upstream_model="ours"), backend="azure", models_think=False))
    assert (body["reasoning"]["effort"], body["temperature"]) == ("minimal", 0.2)


REFUSED: list[tuple[Json, type[UpstreamRejected], str]] = [
    ({"n": 2}, Untranslatable, "n"),
    ({"stop": ["x"]}, Untranslatable, "stop"),
    ({"audio": {"voice": "x"}}, Untranslatable, "audio"),
    ({"modalities": ["audio"]}, Untranslatable, "modalities"),
    ({"moderation": {}}, Untranslatable, "moderation"),
    ({"web_search_options": {}}, Untranslatable, "web_search_options"),
    ({"tools": [{"type": "web_search"}]}, Untranslatable, "tools[0].type"),
    ({"messages": [{"role": "assistant", "audio": {"id": "a"}}]}, Untranslatable, "messages[0].audio"),
    (
        {"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]},
        Untranslatable,
        "messages[0].content[0].type",
    ),
    ({"messages": [{"role": "user", "content": [{"type": "x"}]}]}, Untranslatable, "messages[0].content[0].type"),
    ({"messages": []}, UpstreamRejected, "messages"),
    ({"messages": [{"role": "x"}]}, UpstreamRejected, "messages[0].role"),
    ({"messages": [{"role": "tool", "content": "x"}]}, UpstreamRejected, "messages[0].tool_call_id"),
    ({"messages": [5]}, UpstreamRejected, "messages[0]"),
    ({"response_format": {"type": "x"}}, UpstreamRejected, "response_format"),
    ({"response_format": "x"}, UpstreamRejected, "response_format"),
    ({"tools": 5}, UpstreamRejected, "tools"),
]


@pytest.mark.parametrize(("body", "kind", "param"), REFUSED)
def test_what_cannot_be_asked(body: Json, kind: type[UpstreamRejected], param: str) -> None:
    with pytest.raises(UpstreamRejected) as caught:
        built(make_call(**body))
    assert type(caught.value) is kind
    assert json.loads(caught.value.body)["error"]["param"] == param


@pytest.mark.parametrize("body", [b"[]", b'{"model": "m", "model": "n", "messages": []}', b'{"Model": "m"}'])
def test_a_body_that_two_servers_could_read_as_two_is_refused(body: bytes) -> None:
    with pytest.raises(UpstreamRejected):
        built(replace(make_call(), body=body))
