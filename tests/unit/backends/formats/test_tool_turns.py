"""Chats with tools, in the order and with the choices that single providers demand."""

import json
from typing import cast

import pytest

from backends.dialects import dialect_of
from backends.formats.openai_request import build_body
from backends.formats.tool_turns import OPENING
from backends.protocol import Call

Json = dict[str, object]
ASKED: Json = {"role": "user", "content": "hi"}
CALLED: Json = {"role": "assistant", "tool_calls": [{"id": "abcdefghi", "type": "function", "function": {"name": "f"}}]}
RESULT: Json = {"role": "tool", "tool_call_id": "abcdefghi", "content": "1"}
SYSTEM: Json = {"role": "system", "content": "be brief"}
OK: Json = {"role": "assistant", "content": "OK."}


def sent(body: bytes, provider: str, model: str = "up") -> Json:
    return json.loads(build_body(Call("chat.completions", model, body, False, "r-1"), dialect_of(provider)))


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ([ASKED, CALLED, RESULT, ASKED], [ASKED, CALLED, RESULT, OK, ASKED]),
        ([ASKED, CALLED, RESULT, RESULT, ASKED, ASKED], [ASKED, CALLED, RESULT, RESULT, OK, ASKED, ASKED]),
        ([ASKED, CALLED, RESULT], [ASKED, CALLED, RESULT]),
        ([RESULT], [RESULT]),
        ([], []),
        ("tool", "tool"),
        ({"role": "tool"}, {"role": "tool"}),
    ],
)
def test_mistral_gets_an_answer_before_a_users_next_word(given: object, told: object) -> None:
    """It answers 400: "Unexpected role 'user' after role 'tool'"."""
    body = json.dumps({"model": "a", "messages": given}).encode()
    assert sent(body, "mistral")["messages"] == told
    assert sent(body, "openai")["messages"] == given


@pytest.mark.parametrize(
    ("given", "opened_at"),
    [
        ([CALLED, RESULT, ASKED], 0),
        ([SYSTEM, OK, CALLED, RESULT], 1),
        ([SYSTEM, ASKED, CALLED, RESULT], None),
        ([RESULT, CALLED], None),
        ([OK | {"tool_calls": []}, ASKED, CALLED, RESULT], None),
        ([SYSTEM | {"content": "tool_calls"}], None),
        ([SYSTEM], None),
    ],
)
def test_gemini_gets_a_users_word_before_the_first_call(given: list[Json], opened_at: int | None) -> None:
    """It answers 400: "function call turn comes immediately after a user turn or after a function response turn"."""
    body = json.dumps({"model": "a", "messages": given}).encode()
    signed = cast(list[Json], sent(body, "gemini")["messages"])
    opened = [place for place, message in enumerate(signed) if message == {"role": "user", "content": OPENING}]
    assert opened == ([] if opened_at is None else [opened_at])
    assert len(signed) == len(given) + len(opened)


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (b'{"tool_choice":"auto"}', {}),
        (b'{"tool_choice":"none"}', {"tool_choice": "none"}),
        (b'{"tool_choice":null}', {"tool_choice": None}),
        (b"{}", {}),
        (b'{"tool_choice":"required"}', {"tool_choice": "required", "thinking": {"type": "disabled"}}),
        (b'{"tool_choice":{"type":"function"},"thinking":{}}', {"tool_choice": {"type": "function"}, "thinking": {}}),
        (
            b'{"tool_choice":"required","reasoning_effort":"low"}',
            {"tool_choice": "required", "reasoning_effort": "low"},
        ),
    ],
)
def test_deepseek_does_not_think_where_it_must_call(asked: bytes, told: Json) -> None:
    """It answers 400: "Thinking mode does not support this tool_choice"."""
    assert sent(asked, "deepseek") == told | {"model": "up"}


def test_kimi_k2_does_not_think_where_it_must_call() -> None:
    """K2.5 and K2.6 think by default, and answer 400 as K3 does."""
    for asked in ({"tool_choice": "required"}, {"tool_choice": {"type": "function", "function": {"name": "f"}}}):
        told = asked | {"model": "kimi-k2.6", "thinking": {"type": "disabled"}}
        assert sent(json.dumps(asked).encode(), "moonshot", "kimi-k2.6") == told


def test_kimi_k3_is_forced_by_offering_the_named_tool_alone() -> None:
    """It answers 400: "tool_choice 'specified' is incompatible with thinking enabled"; it takes `required`."""
    tools = [{"type": "function", "function": {"name": name}} for name in ("f", "g")]
    named = {"tools": tools, "tool_choice": tools[1]}
    forced = {"tools": tools[1:], "tool_choice": "required"}
    assert sent(json.dumps(named).encode(), "moonshot", "kimi-k3") == forced | {"model": "kimi-k3"}
    for model, asked in (
        ("kimi-k2-turbo", named),
        ("kimi-k3", named | {"tool_choice": "required"}),
        ("kimi-k3", named | {"tool_choice": {"type": "function", "function": {"name": "h"}}}),
        ("kimi-k3", {"tool_choice": "none"}),
    ):
        assert sent(json.dumps(asked).encode(), "moonshot", model) == asked | {"model": model}
