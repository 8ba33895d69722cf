"""Efforts that a server's refusal offers."""

import pytest

from backends.dialects import ABOUT_REASONING
from backends.formats.efforts import effort_of, offered_effort, with_effort, with_effort_alone

QWEN = "Unexpected reasoning effort {}. Supported types are xhigh (default), medium, and low."
OPENAI = "'reasoning_effort' does not support '{}' with this model. Supported values are: 'low' and 'high'."
PYDANTIC = (
    "[{{'loc': ('body', 'reasoning_effort'), 'msg': \"Input should be 'low', 'medium' or 'high'\", 'input': '{}'}}]"
)


@pytest.mark.parametrize(
    ("words", "asked", "told"),
    [
        (QWEN, "high", "xhigh"),
        (QWEN, "minimal", "low"),
        (QWEN, "none", "low"),
        (QWEN, "max", "xhigh"),
        (OPENAI, "none", "low"),
        (OPENAI, "medium", "high"),
        (PYDANTIC, "minimal", "low"),
        (PYDANTIC, "xhigh", "high"),
        ("`reasoning_effort` must be one of `none` or `default`, not {}", "high", None),
        ("`reasoning_effort` must be one of `none` or `default`, not {}", "minimal", "none"),
        ("reasoning_effort is not supported with this model", "high", None),
        ("reasoning_effort: {} is wrong", "high", None),
        ("temperature must be one of low and high", "medium", None),
    ],
)
def test_the_nearest_that_is_offered(words: str, asked: str, told: str | None) -> None:
    assert offered_effort(asked, words.format(asked).encode()) == told


def test_the_rest_of_the_body_keeps_its_bytes() -> None:
    body = b'{"x": 1.50,"reasoning_effort": "high", "y":2}'
    assert effort_of(body) == "high"
    assert with_effort(body, "xhigh") == b'{"x": 1.50,"reasoning_effort": "xhigh", "y":2}'
    assert effort_of(b'{"reasoning_effort":"odd"}') is effort_of(b"{}") is effort_of(b'{"reasoning_effort":7}') is None


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (b'"reasoning":{"effort":"high","exclude":true}', b',"reasoning_effort":"high"'),
        (b'"reasoning":{"effort":"high"},"reasoning_effort":null', b',"reasoning_effort":"high"'),
        (b'"reasoning":{"effort":"high"},"reasoning_effort":"low"', b',"reasoning_effort":"low"'),
        (b'"reasoning":{"max_tokens":1024}', b',"reasoning_effort":"low"'),
        (b'"reasoning":{"enabled":true}', b',"reasoning_effort":"medium"'),
        (b'"reasoning":{"enabled":false,"effort":"high"}', b',"reasoning_effort":"none"'),
        (b'"reasoning":{"effort":"odd"}', b""),
        (b'"reasoning":{}', b""),
        (b'"thinking":{"type":"disabled"}', b',"reasoning_effort":"none"'),
        (b'"thinking":{"type":"enabled","clear_thinking":false}', b',"reasoning_effort":"medium"'),
        (b'"thinking":{"type":"enabled"},"reasoning_effort":"max"', b',"reasoning_effort":"max"'),
        (b'"thinking":{"type":"enabled","budget_tokens":9000}', b',"reasoning_effort":"high"'),
        (b'"thinking":{"type":"adaptive"},"reasoning":{"effort":"odd"}', b""),
    ],
)
def test_what_others_say_about_reasoning_is_an_effort(given: bytes, told: bytes) -> None:
    assert with_effort_alone(b'{"x":1.50,%b}' % given, ABOUT_REASONING) == b'{"x":1.50%b}' % told


@pytest.mark.parametrize(
    "body",
    [
        *(b'{"messages":[{"reasoning":"hm"}]}', b'{"reasoning":"hm"}', b'{"reasoning":{},"reasoning":{}}'),
        *(b'["reasoning"]', b'{"thinking":true}', b"{}"),
    ],
)
def test_what_says_nothing_of_it_in_their_form_stays(body: bytes) -> None:
    assert with_effort_alone(body, ABOUT_REASONING) == body
