"""One key raises no alarm if others have judged enough, and counts if nobody else has."""

import random

import pytest

from gateway.learning.judged_model import JudgedModel
from gateway.learning.voices import outvoted

PREDICTED = 0.8
Votes = list[tuple[str | None, float]]


def honest(keys: int, votes: int, share: float = PREDICTED) -> Votes:
    """`share` of each key's judgements are good."""
    return [(f"key-{key}", float(vote < share * votes)) for key in range(keys) for vote in range(votes)]


def bad(votes: int, voter: str | None = "hostile") -> Votes:
    return [(voter, 0.0)] * votes


def verdict(votes: Votes, *, last: Votes | None = None) -> str:
    """In any order, except that `last` comes last."""
    model = JudgedModel()
    for voter, score in [*random.Random(1).sample(votes, len(votes)), *(last or [])]:
        model.observe(PREDICTED, score, voter)
    return model.verdict


@pytest.mark.parametrize(
    ("votes", "expected"),
    [
        (honest(20, 50), "holds"),
        (honest(20, 50) + bad(5000), "holds"),
        (honest(20, 50) + bad(100), "holds"),
        (honest(5, 50) + bad(5000), "overconfident"),  # others have said little, as in learning
        (bad(30), "overconfident"),
        (bad(2000, "app") + honest(1, 2), "overconfident"),
        (honest(100, 20, 0.5), "overconfident"),
        (honest(100, 20, 1.0), "underconfident"),
        (honest(20, 50) + bad(5000, "one") + bad(5000, "other"), "overconfident"),
        (honest(20, 50) + bad(5000, None), "overconfident"),
        (bad(30) + [(None, float(n % 5 != 0)) for n in range(1000)], "holds"),
    ],
)
def test_who_raises_an_alarm(votes: Votes, expected: str) -> None:
    assert verdict(votes) == expected


@pytest.mark.parametrize("burst", [16, 40, 100, 5000])
def test_a_burst_of_one_key_raises_none(burst: int) -> None:
    assert verdict(honest(20, 50), last=bad(burst)) == "holds"


def test_a_bad_hour_that_several_keys_see_raises_one() -> None:
    assert verdict(honest(20, 50), last=[(f"key-{n % 4}", 0.0) for n in range(40)]) == "overconfident"


def test_who_is_outvoted() -> None:
    assert outvoted({}) == []
    assert outvoted({"app": 2000.0}) == []
    assert outvoted({"app": 2000.0, "trial": 2.0}) == ["trial"]
    assert set(outvoted({**{f"key-{n}": 50.0 for n in range(20)}, "loud": 5000.0})) == {
        "loud",
        *(f"key-{n}" for n in range(20)),
    }
    assert outvoted({"loud": 50.0, None: 1000.0}) == ["loud"]
