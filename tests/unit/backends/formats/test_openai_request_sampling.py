"""What models that think are told of sampling and efforts where OpenAI's own API is asked."""

import json
from typing import cast

from backends.dialects import DIALECTS
from backends.formats.openai_request import build_body
from backends.protocol import Call, Operation


def asked_of(
    model: str,
    body: dict[str, object],
    *,
    provider: str = "openai",
    operation: Operation = "chat.completions",
    is_translated: bool = False,
) -> dict[str, object]:
    call = Call(operation, model, json.dumps(body).encode(), False, "r-1", is_translated=is_translated)
    return cast(dict[str, object], json.loads(build_body(call, DIALECTS[provider])))


DRAWN: dict[str, object] = {"model": "auto", "temperature": 0, "top_p": 0.5, "logprobs": True, "top_logprobs": 2}
FUNCTIONS: dict[str, object] = {"tools": [{"type": "function", "function": {"name": "f"}}]}
CUSTOM: dict[str, object] = {"tools": [{"type": "custom", "custom": {"name": "f"}}]}


def test_a_model_that_thinks_is_not_told_how_to_draw_tokens() -> None:
    """OpenAI answers 400 to sampling parameters, so every chat with `temperature: 0` failed."""
    assert asked_of("gpt-6-luna", DRAWN) == {"model": "gpt-6-luna"}
    assert asked_of("gpt-6-luna", DRAWN, provider="openrouter") == DRAWN | {"model": "gpt-6-luna"}
    for model, effort in [("gpt-5.4-mini", {}), ("gpt-6-luna", {"reasoning_effort": "none"}), ("gpt-4o", {})]:
        assert asked_of(model, DRAWN | effort) == DRAWN | effort | {"model": model}


def test_who_named_the_model_in_openais_words_is_passed_on_as_they_came() -> None:
    """They get OpenAI's own error: no requested field is dropped silently."""
    named = DRAWN | FUNCTIONS | {"model": "gpt-6-luna", "reasoning_effort": "minimal"}
    assert asked_of("gpt-6-luna", named) == named
    told = asked_of("gpt-6-luna", named, is_translated=True)
    assert told == DRAWN | FUNCTIONS | {"model": "gpt-6-luna", "reasoning_effort": "none"}


def test_a_model_that_never_thinks_is_told_no_effort() -> None:
    """OpenAI answers: unrecognized request argument."""
    assert asked_of("gpt-4o", {"reasoning_effort": "high"}) == {"model": "gpt-4o"}


def test_functions_in_a_chat_are_called_without_thinking() -> None:
    """From 5.4 on OpenAI rejects them otherwise: "set reasoning_effort to 'none'"."""
    expected = DRAWN | FUNCTIONS | {"model": "gpt-6-luna", "reasoning_effort": "none"}
    assert asked_of("gpt-6-luna", DRAWN | FUNCTIONS) == expected
    assert asked_of("gpt-6-luna", DRAWN | FUNCTIONS | {"reasoning_effort": "high"}) == expected
    assert asked_of("gpt-6-luna", DRAWN | FUNCTIONS | {"reasoning_effort": None}) == expected
    assert asked_of("gpt-6-luna", CUSTOM) == CUSTOM | {"model": "gpt-6-luna"}


def test_a_response_is_told_so_only_where_the_caller_left_the_model_to_us() -> None:
    asked: dict[str, object] = {"model": "auto", "temperature": 0, "tools": [{"type": "function", "name": "f"}]}
    told = asked_of("gpt-6-luna", asked, operation="responses")
    assert told == {"model": "gpt-6-luna", "tools": asked["tools"]}
    for same in ({"reasoning": {"effort": "none"}}, {"model": "gpt-6-luna"}):
        told = asked_of("gpt-6-luna", asked | same, operation="responses")
        assert told == asked | same | {"model": "gpt-6-luna"}
