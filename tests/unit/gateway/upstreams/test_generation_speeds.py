"""The assumed speed of a model: its own recent speed, or that of the fastest model."""

from gateway.upstreams.generation_speeds import (
    ASSUMED_TOKENS_PER_SECOND,
    LEAST_TOKENS,
    REMEMBERED,
    GenerationSpeeds,
)
from tests.builders import make_candidate

ONE, OTHER = make_candidate("one"), make_candidate("other")


def test_what_is_assumed_until_something_is_known() -> None:
    speeds = GenerationSpeeds()
    assert speeds.tokens_per_second(ONE) == ASSUMED_TOKENS_PER_SECOND
    speeds.note(ONE, LEAST_TOKENS - 1, 0.001)
    speeds.note(ONE, 1000, 0.0)
    assert speeds.tokens_per_second(ONE) == ASSUMED_TOKENS_PER_SECOND, "neither says anything"


def test_the_highest_lately_and_of_others_for_a_model_that_nobody_hears_out() -> None:
    speeds = GenerationSpeeds()
    speeds.note(ONE, 1000, 5.0)
    speeds.note(ONE, 1000, 10.0)
    assert speeds.tokens_per_second(ONE) == 200
    assert speeds.tokens_per_second(OTHER) == 200
    speeds.note(OTHER, 1000, 20.0)
    assert speeds.tokens_per_second(OTHER) == 50
    for _ in range(REMEMBERED):
        speeds.note(ONE, 1000, 10.0)
    assert speeds.tokens_per_second(ONE) == 100, "the quick one is long ago"
