"""One noisy or hostile key beside honest ones: it changes a correction a little, and decides no promotion."""

import random

import pytest

from classifier.online.correction import NONE, Correction, learn
from gateway.learning.correction import Judged, outcomes
from gateway.learning.promotion import judge
from gateway.learning.voices import ALWAYS_HEARD, LARGEST_SHARE, factors, most_of_one
from tests.builders import make_candidate, make_prices, make_snapshot
from tests.unit.gateway.learning.judgements import judged

PREDICTED = 0.8
SNAPSHOT = make_snapshot(
    "version: 1\nrules:\n  - name: default\n    choose: {from: [small, big], min_quality: 0.6, explore: 0.4}\n",
    [make_candidate("small", prices=make_prices(0.1, 0.4)), make_candidate("big", prices=make_prices(5.0, 20.0))],
)


def vote(voter: str, score: float) -> Judged:
    return judged(1, "small", score, propensity=0.8, small=PREDICTED)._replace(voter=voter)


def honest(keys: int, votes: int) -> list[Judged]:
    """Each key finds four of five answers of `small` good, as was predicted."""
    fives = [[*[vote(f"key-{key}", 1.0)] * 4, vote(f"key-{key}", 0.0)] for key in range(keys)]
    return [one for five in fives for one in five * (votes // 5)]


def hostile(votes: int) -> list[Judged]:
    """One key that finds nothing good."""
    return [vote("hostile", 0.0)] * votes


def learned_quality(rows: list[Judged]) -> float:
    return learn(outcomes(rows, lambda _: NONE)).apply("small", PREDICTED, 0.25)


def test_a_key_with_five_thousand_bad_votes_beside_twenty_with_fifty_honest_ones() -> None:
    among_honest = learned_quality(honest(20, 50))
    assert among_honest == pytest.approx(PREDICTED, abs=0.01)
    attacked = learned_quality([*honest(20, 50), *hostile(5000)])
    assert among_honest - attacked < 0.12
    anonymous = [one._replace(voter=None) for one in [*honest(20, 50), *hostile(5000)]]
    assert among_honest - learned_quality(anonymous) > 0.5, "so far it would move without a limit"


def test_it_decides_no_promotion() -> None:
    """A correction that gives up a good cheap model, which only the hostile key's judgements support."""
    dearer = Correction({"small": (-3.0, 0.0)})
    both = [*honest(20, 50), *hostile(2000)]
    bigs = [
        judged(200_000 + n, "big", float(n % 10 != 0), propensity=0.2, small=PREDICTED)._replace(voter=f"key-{n % 20}")
        for n in range(100)
    ]
    verdict = judge([*bigs, *both], SNAPSHOT, dearer, NONE)
    assert verdict.incumbent.mean == pytest.approx(PREDICTED * 0.9, abs=0.05), "a tenth of the whole found it bad"
    anonymous = judge([one._replace(voter=None) for one in [*bigs, *both]], SNAPSHOT, dearer, NONE)
    assert anonymous.incumbent.mean < 0.4


def test_a_second_key_silences_nobody() -> None:
    alone = [one._replace(voter="app") for one in honest(1, 2000)]
    tried = [one._replace(voter="trial") for one in hostile(2)]
    verdict = judge([*alone, *tried], SNAPSHOT, NONE, NONE)
    assert verdict.incumbent.effective > 1000
    assert verdict.incumbent.mean == pytest.approx(PREDICTED, abs=0.05)


def test_none_weighs_more_than_its_share_of_what_is_left() -> None:
    draw = random.Random(5)
    for _ in range(200):
        weights = [draw.expovariate(1 / 10 ** draw.randrange(1, 6)) for _ in range(draw.randrange(0, 40))]
        most = most_of_one(weights)
        left = [min(weight, most) for weight in weights]
        assert most >= ALWAYS_HEARD
        assert max(left, default=0.0) <= max(ALWAYS_HEARD, LARGEST_SHARE * sum(left) * (1 + 1e-9))


def test_equal_voices_are_left_alone_and_programs_are_no_voice() -> None:
    assert set(factors([(f"key-{n % 12}", 1.0) for n in range(12_000)]).values()) == {1.0}
    found = factors([(None, 1.0)] * 9000 + [("app", 1.0)] * 1000)
    assert found == {None: 1.0, "app": ALWAYS_HEARD / 1000}
