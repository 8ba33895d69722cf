"""Which models refuse how tokens are drawn, by the names that providers gave them."""

import pytest

from backends.errors import Untranslatable
from backends.formats.sampling import effort_for_functions, is_older_claude, nearest_effort, thinks

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
