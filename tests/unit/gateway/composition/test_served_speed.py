"""A server that reports no timings is measured by when its tokens come: in virtual time, so to the digit."""

from dataclasses import replace

import pytest

from backends.protocol import Call
from backends.scripted import Outcome, Script, ScriptedBackend, follow
from backends.usage import Usage
from gateway.composition.served_speed import DECODED_TOKENS, measure_backend
from gateway.config.engine_curve import CurveFile
from gateway.errors import StateError
from tests.virtual_time import run

USAGE = Usage(input_tokens=1000, cached_input_tokens=200, output_tokens=DECODED_TOKENS)
ANSWER = Outcome(pieces=("x",) * DECODED_TOKENS, usage=USAGE, first_piece_delay_seconds=0.8, piece_delay_seconds=0.02)
BEFORE_TWO_AT_ONCE = [ANSWER] * 5
"""A warm-up, three for prefill, and one alone."""


def measured(script: Script) -> tuple[CurveFile, list[Call]]:
    backend = ScriptedBackend("vllm", script, keeps_calls=True)
    curve = run(lambda: measure_backend(backend, "llama", sweep=(1, 2, 4), progress=lambda _: None))
    assert backend.open_replies == 0
    return curve, backend.calls


@pytest.mark.parametrize("together", [1, 16, 64])
def test_tokens_from_the_first_to_the_last_are_decode_and_what_comes_before_is_prefill(together: int) -> None:
    """However many come in one event: a server that sends 64 at once looked twice as fast, and so half as dear."""
    pieces = ("x" * together,) * (DECODED_TOKENS // together)
    curve, calls = measured(follow([replace(ANSWER, pieces=pieces, piece_delay_seconds=0.02 * together)]))
    assert curve == CurveFile("llama", 1000.0, [(1, 50.0), (2, 100.0), (4, 200.0)])
    assert len({call.cache_salt for call in calls}) == len(calls) == 11


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (replace(ANSWER, first_piece_delay_seconds=9.0), "did not answer 2 requests at once: .*--max-num-seqs"),
        (replace(ANSWER, piece_delay_seconds=0.0), "llama at vllm sent an answer in one piece"),
        (replace(ANSWER, pieces=()), "llama at vllm answered nothing"),
        (replace(ANSWER, usage=None), r"vllm does not say in its streams how many tokens it sent \(`usage`\)"),
        (replace(ANSWER, fault="rate_limited"), "vllm answered 429: .* Choose a lower --concurrency"),
        (replace(ANSWER, fault="auth"), "vllm answered 401; `breakeven doctor --ask` says what is wrong"),
    ],
)
def test_what_shows_no_speed_makes_no_curve(outcome: Outcome, said: str) -> None:
    with pytest.raises(StateError, match=said):
        measured(follow([*BEFORE_TWO_AT_ONCE, ANSWER, outcome]))
