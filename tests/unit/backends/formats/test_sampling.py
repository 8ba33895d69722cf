"""Which models reject sampling parameters, by the providers' names for them."""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from backends.errors import Untranslatable
from backends.formats.sampling import (
    answers_responses_alone,
    claude_effort,
    effort_for_functions,
    gemini_thinking,
    is_older_claude,
    nearest_effort,
    thinks,
)

OLDER = """claude-2.1 claude-v1 claude-instant-1.2 claude-3-opus-20240229 claude-3-5-haiku-latest
claude-3-7-sonnet-20250219 claude-opus-4-20250514 claude-opus-4-1 claude-opus-4-6-20260205 claude-sonnet-4
claude-sonnet-4.6 claude-sonnet-4-5@20250929 claude-haiku-4-5-20251001 anthropic.claude-opus-4-6-v1:0
kimi-k3 MiniMax-M3"""
NEWER = """claude-opus-4-7 claude-opus-4.8 claude-opus-4-7-20260416 claude-opus-5 claude-opus-5-5 claude-sonnet-5
claude-sonnet-5-5 claude-haiku-5-5 claude-fable-5-1 claude-mythos-preview anthropic.claude-opus-4-7-v1:0 claude-opus-10
claude-someday"""


@pytest.mark.parametrize("model", OLDER.split())
def test_older_models_of_anthropic_and_models_of_others_take_it(model: str) -> None:
    assert is_older_claude(model)


@pytest.mark.parametrize("model", NEWER.split())
def test_models_of_anthropic_since_opus_4_7_do_not(model: str) -> None:
    assert not is_older_claude(model)


@pytest.mark.parametrize(
    ("model", "unasked", "at_none", "at_low"),
    [
        ("gpt-4o", False, False, False),
        ("gpt-4.1-mini", False, False, False),
        ("gpt-oss-120b", False, False, False),
        ("gpt-5-chat-latest", False, False, False),
        ("text-embedding-3-small", False, False, False),
        ("o3-mini", True, True, True),
        ("gpt-5-mini-2025-08-07", True, False, True),
        ("gpt-5.1", False, False, True),
        ("gpt-5.4-mini", False, False, True),
        ("gpt-5.4-pro", True, True, True),
        ("gpt-5.5", True, False, True),
        ("gpt-5.10-terra", True, False, True),
        ("gpt-6-luna", True, False, True),
        ("gpt-6-astra", True, True, True),
        ("gpt-6-rosalind", True, True, True),
        ("gpt-7", True, False, True),
    ],
)
def test_when_a_model_of_openai_thinks(model: str, *, unasked: bool, at_none: bool, at_low: bool) -> None:
    assert [thinks(model, effort) for effort in (None, "none", "low")] == [unasked, at_none, at_low]


ASKED = ("none", "minimal", "low", "high", "xhigh", "max", None)


@pytest.mark.parametrize(
    ("model", "told"),
    [
        ("gpt-4o", (None,) * 7),
        ("gpt-5-chat-latest", ASKED),
        ("gpt-oss-120b", ASKED),
        ("o3", ("low", "low", "low", "high", "high", "high", None)),
        ("gpt-5-mini", ("minimal", "minimal", "low", "high", "high", "high", None)),
        ("gpt-5.1", ("none", "low", "low", "high", "high", "high", None)),
        ("gpt-5.4-mini", ("none", "low", "low", "high", "xhigh", "xhigh", None)),
        ("gpt-6-luna", ("none", "low", "low", "high", "xhigh", "xhigh", None)),
        ("gpt-6.1-sol", ("low", "low", "low", "high", "xhigh", "xhigh", None)),
    ],
)
def test_an_effort_that_a_model_does_not_know_is_the_nearest(model: str, told: tuple[str | None, ...]) -> None:
    assert tuple(nearest_effort(model, effort) for effort in ASKED) == told


@pytest.mark.parametrize(
    ("model", "asked", "told"),
    [
        ("gpt-4o", None, None),
        ("gpt-5-mini", None, None),
        ("gpt-5.2", "high", "high"),
        ("gpt-5.4-mini", None, None),
        ("gpt-5.4-mini", "high", "none"),
        ("gpt-5.6-luna", None, "none"),
        ("gpt-6-luna", "low", "none"),
        ("gpt-6-luna", "none", "none"),
    ],
)
def test_functions_are_called_without_thinking(model: str, asked: str | None, told: str | None) -> None:
    assert effort_for_functions(model, asked) == told


@pytest.mark.parametrize("model", ["gpt-6.1-sol", "gpt-6-astra", "gpt-5.4-pro"])
def test_a_model_that_always_thinks_calls_no_functions_in_a_chat(model: str) -> None:
    with pytest.raises(Untranslatable, match="/v1/responses"):
        effort_for_functions(model, None)


# Models of OpenAI and xAI whose `supported_endpoints` in litellm 1.106.2's map lack chats.
RESPONSES_ALONE = """computer-use-preview computer-use-preview-2025-03-11 gpt-5-codex gpt-5-pro gpt-5-pro-2025-10-06
gpt-5.1-codex gpt-5.1-codex-max gpt-5.1-codex-mini gpt-5.2-codex gpt-5.2-pro gpt-5.2-pro-2025-12-11 gpt-5.3-codex
gpt-5.4-pro gpt-5.4-pro-2026-03-05 gpt-5.5-pro gpt-5.5-pro-2026-04-23 gpt-daybreak-blue-latest gpt-daybreak-red-latest
o1-pro o1-pro-2025-03-19 o3-deep-research o3-deep-research-2025-06-26 o3-pro o3-pro-2025-06-10 o4-mini-deep-research
o4-mini-deep-research-2025-06-26 grok-4.20-multi-agent grok-4.20-multi-agent-0309 grok-4.20-multi-agent-latest"""
CHATS_TOO = """gpt-4o gpt-4.1-mini gpt-5 gpt-5-chat-latest gpt-5-search-api gpt-5.4-mini gpt-5.5 gpt-5.6-luna
gpt-6-astra gpt-6-luna gpt-6.1-sol gpt-audio gpt-oss-120b o1 o3 o3-mini o4-mini daybreak-blue-latest chat-latest
grok-4.7 openai/gpt-5-pro deepseek-v4-pro gemini-3.1-pro-preview codestral-latest my-codex the-model"""


@pytest.mark.parametrize("model", RESPONSES_ALONE.split())
def test_models_that_answer_no_chats(model: str) -> None:
    assert answers_responses_alone(model)
    assert thinks(model, None) or not model.startswith(("gpt", "o"))


@pytest.mark.parametrize("model", CHATS_TOO.split())
def test_models_that_answer_chats(model: str) -> None:
    assert not answers_responses_alone(model)


@pytest.fixture(scope="module")
def litellm_map() -> dict[str, dict[str, Any]]:
    package = find_spec("litellm")
    if package is None or package.origin is None:
        pytest.skip("litellm, whose map is compared with, is not installed: pip install -e '.[litellm]'")
    file = Path(package.origin).parent / "model_prices_and_context_window_backup.json"
    return json.loads(file.read_text(encoding="utf-8"))


def test_the_efforts_of_claude_are_those_of_the_installed_map_of_litellm(litellm_map: dict[str, Any]) -> None:
    told: dict[str, str | None] = {
        name: "xhigh"
        if facts.get("supports_xhigh_reasoning_effort")
        else "max"
        if facts.get("supports_max_reasoning_effort")
        else "high"
        if facts.get("supports_output_config")
        else None
        for name, facts in litellm_map.items()
        if name.startswith("claude-") and facts.get("litellm_provider") == "anthropic"
    }
    assert {name: claude_effort(name, "xhigh") for name in told} == told
    assert {claude_effort(name, "low") for name, most in told.items() if most} == {"low"}
    assert claude_effort("kimi-k3", "xhigh") == "xhigh"


def test_gemini_is_asked_for_the_thinking_that_it_knows() -> None:
    """It answers 400: "Thinking level is not supported for this model", "Thinking level MINIMAL is not supported"."""
    seen = {"includeThoughts": True}
    for model in ("gemini-3-flash-preview", "gemini-3.6-flash", "gemini-3.5-flash-lite"):
        assert gemini_thinking(model, "none") == {"thinkingLevel": "minimal"}
    for model in ("gemini-3.8-flash", "gemini-3.10-flash", "gemini-3.1-pro-preview", "gemini-flash-latest"):
        assert gemini_thinking(model, "minimal") == {"thinkingLevel": "low"}
        assert gemini_thinking(model, "xhigh") == {"thinkingLevel": "high"} | seen
    told = [gemini_thinking("gemini-2.5-pro", effort) for effort in ("none", "low", "medium", "max", "?")]
    most = [{"thinkingBudget": budget} | seen for budget in (1_024, 8_192, 24_576)]
    assert told == [{"thinkingBudget": 512}, *most, None]


def test_the_installed_map_of_litellm_names_no_other(litellm_map: dict[str, Any]) -> None:
    alone = {
        name.removeprefix("xai/"): "/v1/responses" in endpoints and "/v1/chat/completions" not in endpoints
        for name, facts in litellm_map.items()
        if facts.get("litellm_provider") in ("openai", "xai") and (endpoints := facts.get("supported_endpoints"))
    }
    assert {name for name, is_alone in alone.items() if answers_responses_alone(name) != is_alone} == set()


@pytest.mark.parametrize(
    ("model", "told"),
    [
        ("gpt-5-pro", ("high",) * 6 + (None,)),
        ("gpt-5.4-pro", ("medium", "medium", "medium", "high", "xhigh", "xhigh", None)),
        ("o3-pro", ("low", "low", "low", "high", "high", "high", None)),
        ("gpt-5-codex", ("low", "low", "low", "high", "high", "high", None)),
        ("gpt-5.1-codex-max", ("low", "low", "low", "high", "xhigh", "xhigh", None)),
        ("gpt-5.3-codex", ("none", "low", "low", "high", "xhigh", "xhigh", None)),
        ("gpt-5.4-mini", ("none", "low", "low", "high", "xhigh", "xhigh", None)),
        ("gpt-6.1-sol", ("low", "low", "low", "high", "xhigh", "max", None)),
    ],
)
def test_the_nearest_effort_where_it_is_asked_over_responses(model: str, told: tuple[str | None, ...]) -> None:
    assert tuple(nearest_effort(model, effort, in_chat=False) for effort in ASKED) == told
