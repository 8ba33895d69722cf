"""Simulated answers: repeatable, plausible, and within the caller's limits."""

import json

import pytest

from backends.protocol import Call
from backends.scripted import Outcome, ScriptedBackend, follow
from backends.simulation import Pace, simulate


def make_call(body: object, *, model: str = "m") -> Call:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Call("chat.completions", model, raw, True, "r-1")


HI = {"messages": [{"role": "user", "content": "x" * 400}]}
PACE = Pace(time_to_first_token_seconds=0.5, decode_tokens_per_second=100, mean_output_tokens=100, tokens_per_piece=5)


def test_the_same_call_gives_the_same_outcome_and_another_another() -> None:
    assert simulate(make_call(HI), PACE) == simulate(make_call(HI), PACE)
    lengths = {simulate(make_call(HI, model=f"m{number}"), PACE).usage for number in range(20)}
    assert len(lengths) > 10


def test_usage_and_pace() -> None:
    outcome = simulate(make_call(HI), PACE)
    assert outcome.usage
    assert outcome.usage.input_tokens == 100
    assert 50 <= outcome.usage.output_tokens <= 150
    assert outcome.usage.is_estimated
    assert len("".join(outcome.pieces).split()) == outcome.usage.output_tokens
    assert (outcome.first_piece_delay_seconds, outcome.piece_delay_seconds) == (0.5, 0.05)


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_the_callers_limit_holds(name: str) -> None:
    outcome = simulate(make_call(HI | {name: 7}), PACE)
    assert outcome.usage
    assert (outcome.usage.output_tokens, outcome.finish_reason) == (7, "length")


@pytest.mark.parametrize(
    ("body", "tokens"),
    [
        (b"not json", 2),
        ({}, 1),
        ({"messages": [{"content": [{"type": "text", "text": "x" * 40}, {"type": "image_url"}]}]}, 10),
        ({"prompt": "x" * 40}, 10),
        ([], 1),
    ],
)
def test_any_body_has_an_input(body: object, tokens: int) -> None:
    outcome = simulate(make_call(body), PACE)
    assert outcome.usage
    assert outcome.usage.input_tokens == tokens


async def test_a_backend_that_simulates_says_so_and_waits_as_told() -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    backend = ScriptedBackend("b", lambda call: simulate(call, PACE), sleep=sleep)
    assert backend.is_simulated
    reply = await backend.open(make_call(HI))
    chunks = [chunk async for chunk in reply]
    await reply.aclose()
    assert chunks[-1].is_done
    assert slept[0] == 0.5
    assert set(slept[1:]) == {0.05}


def test_a_script_needs_an_outcome_and_repeats_its_last() -> None:
    with pytest.raises(ValueError, match="at least one"):
        follow([])
    script = follow([Outcome(finish_reason="a"), Outcome(finish_reason="b")])
    assert [script(make_call(HI)).finish_reason for _ in range(4)] == ["a", "b", "b", "b"]
