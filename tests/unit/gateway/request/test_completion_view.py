"""The view of a plain completion for the decision."""

import json

import pytest

from gateway.errors import InvalidRequest
from gateway.request.view import RequestView, parse_request


def view(**fields: object) -> RequestView:
    return parse_request("completions", json.dumps({"model": "m", "prompt": "x", **fields}).encode())


def test_no_token_at_all_may_be_asked_for() -> None:
    """With `echo` and `logprobs` it scores the prompt, as evaluation harnesses do."""
    assert view(max_tokens=0, echo=True, logprobs=1).max_output_tokens is None
    assert view(max_tokens=7).max_output_tokens == 7
    with pytest.raises(InvalidRequest, match="max_tokens"):
        view(max_tokens=-1)


@pytest.mark.parametrize(
    ("prompt", "tokens"), [(None, 1), ("x" * 40, 11), (["x" * 40, "y" * 40], 21), ([1, 2, 3], 4), ([[1, 2], [3]], 4)]
)
def test_prompts_are_measured_in_every_form(prompt: object, tokens: int) -> None:
    assert view(prompt=prompt).input_tokens == tokens
    assert view(prompt=prompt, suffix="z" * 40).input_tokens == tokens + 11


@pytest.mark.parametrize(
    ("prompt", "tokens"),
    [(None, 0), ("x", 0), (["x" * 40], 0), ([1, 2, 3], 0), (["x" * 40, "y" * 80], 32), ([[1] * 20, [2]], 31)],
)
def test_the_longest_of_several_prompts_has_to_fit(prompt: object, tokens: int) -> None:
    assert view(prompt=prompt, suffix="z" * 40).longest_prompt_tokens == tokens


@pytest.mark.parametrize(
    ("fields", "answers"),
    [
        ({}, 1),
        ({"prompt": ""}, 1),
        ({"prompt": None}, 1),
        ({"prompt": []}, 1),
        ({"prompt": [1, 2, 3]}, 1),
        ({"prompt": ["a", "b", "c"]}, 3),
        ({"prompt": [[1], [2, 3]], "n": 4}, 8),
        ({"best_of": 20}, 20),
        ({"best_of": 2, "n": 2, "prompt": ["a", "b"]}, 4),
    ],
)
def test_every_answer_that_is_billed_is_counted(fields: dict[str, object], answers: int) -> None:
    """Several prompts are as many answers, each with its own limit; `best_of` returns only the best."""
    assert view(**fields).choices == answers


def test_best_of_has_the_bounds_of_n() -> None:
    with pytest.raises(InvalidRequest, match="best_of: must be from 1 to 128, not 129"):
        view(best_of=129)
