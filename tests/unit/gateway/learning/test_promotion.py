"""A correction is promoted only if it surely helps, or costs less and is as good or surely good enough."""

import random
import re
from collections.abc import Sequence
from functools import cache

import msgspec
import pytest

from classifier.online.correction import NONE, Correction, learn
from classifier.online.off_policy import Logged, doubly_robust
from gateway.learning.correction import TRUST, Judged, outcomes
from gateway.learning.promotion import judge
from gateway.ledger.entry import SHADOW
from gateway.routing.snapshot import Snapshot
from tests.builders import make_candidate, make_prices, make_snapshot
from tests.unit.gateway.learning.judgements import judged
from tests.unit.gateway.ledger.builders import make_entry


def snapshot_of(limits: str) -> Snapshot:
    return make_snapshot(
        f"version: 1\nrules:\n  - name: default\n    choose: {{from: [small, big], {limits}, explore: 0.4}}\n",
        [make_candidate("small", prices=make_prices(0.1, 0.4)), make_candidate("big", prices=make_prices(5.0, 20.0))],
    )


SNAPSHOT = snapshot_of("min_quality: 0.7")


@cache
def traffic(small: float, *, size: int = 800) -> Sequence[Judged]:
    """`small` was predicted too poor to be used (0.6), and was explored with propensity 0.2; `big` is right in 90 %."""
    draw = random.Random(1)
    found: list[Judged] = []
    for number in range(1, size + 1):
        is_small = draw.random() < 0.2
        right = draw.random() < (small if is_small else 0.9)
        found.append(judged(number, "small" if is_small else "big", float(right), propensity=0.2 if is_small else 0.8))
    return found


def test_what_nobody_said_teaches_but_decides_no_promotion() -> None:
    said = traffic(0.92)
    implied = [one._replace(score=0.0, weight=TRUST["repeat"], is_implied=True) for one in said]
    good, bad = learn(outcomes(said, lambda _: NONE)), learn(outcomes([*said, *implied], lambda _: NONE))
    assert good.shifts["small"][0] > bad.shifts["small"][0]
    assert judge([*said, *implied], SNAPSHOT, good, NONE) == judge(said, SNAPSHOT, good, NONE)


def test_a_cheap_model_that_is_as_good_is_promoted() -> None:
    rows = traffic(0.92)
    candidate = learn(outcomes(rows[:500], lambda _: NONE))
    verdict = judge(rows, SNAPSHOT, candidate, NONE)
    assert verdict.candidate_cost_pico_usd < verdict.incumbent_cost_pico_usd
    assert verdict.candidate.mean == pytest.approx(0.92, abs=0.06)
    assert verdict.incumbent.mean == pytest.approx(0.9, abs=0.04)


@pytest.mark.parametrize(
    ("limits", "small", "is_promoted"),
    [
        ("min_quality: 0.7", 0.85, True),
        ("min_quality: 0.7", 0.72, False),
        ("min_quality: 0.7, keep_quality: 0.8", 0.85, False),
        ("min_quality: 0.7, quality_share: 0.8", 0.85, False),
    ],
)
def test_poorer_answers_for_less_are_promoted_if_they_surely_suffice(
    limits: str, small: float, is_promoted: bool
) -> None:
    """A rule that asks for a share of the best is not content with a number."""
    verdict = judge(traffic(small), snapshot_of(limits), Correction({"small": (2.0, 0.0)}), NONE)
    assert verdict.gain.high < 0
    assert verdict.least_saved_pico_usd > 0
    assert (verdict.objection is None) is is_promoted
    assert re.fullmatch(r"tested on 800 judged requests: scores -0\.[012]\d+, cost -98%", verdict.summary)


def test_what_moves_to_a_dearer_model_does_not_make_up_for_the_rest() -> None:
    """At a difficulty of 0.25 `small` is taken up and gives 0.6, at 0.75 it is given up for `big`, which gives 0.9."""
    hard: list[Judged] = []
    for one in traffic(0.8, size=600):
        decision = one.entry.intent.decision
        facts = msgspec.structs.replace(decision.facts, difficulty=0.75, quality={"small": 0.75, "big": 0.9})
        intent = msgspec.structs.replace(one.entry.intent, decision=msgspec.structs.replace(decision, facts=facts))
        hard.append(one._replace(entry=msgspec.structs.replace(one.entry, intent=intent)))
    easy = traffic(0.6)
    verdict = judge([*easy, *hard], SNAPSHOT, Correction({"small": (0.0, -8.0)}), NONE)
    assert verdict.moved == 1400
    assert verdict.margin is not None
    assert verdict.margin == judge(easy, SNAPSHOT, Correction({"small": (0.0, -8.0)}), NONE).margin
    assert verdict.margin.mean == pytest.approx(-0.1, abs=0.1)
    assert verdict.objection is not None
    assert "against what their rules ask for" in verdict.objection


def test_a_correction_that_would_spoil_answers_is_refused() -> None:
    verdict = judge(traffic(0.5), SNAPSHOT, Correction({"small": (2.0, 0.0)}), NONE)
    assert verdict.candidate.mean < 0.7
    assert verdict.objection is not None
    assert "not shown to be as good" in verdict.objection


def test_a_correction_that_raises_quality_surely_is_promoted() -> None:
    draw = random.Random(2)
    rows = [
        judged(
            number,
            model := "big" if draw.random() < 0.2 else "small",
            float(draw.random() < (0.95 if model == "big" else 0.4)),
            propensity=0.2 if model == "big" else 0.8,
            small=0.8,
        )
        for number in range(1, 1201)
    ]
    candidate = learn(outcomes(rows[:800], lambda _: NONE))
    assert judge(rows[800:] + rows[:800], SNAPSHOT, candidate, NONE).objection is None


def test_what_was_never_tried_where_it_would_be_moved_to_is_not_promoted() -> None:
    """`small` was asked everything and failed; that `big` would do better is only a prediction."""
    rows = [judged(number, "small", float(number % 3 == 0), propensity=1.0, small=0.8) for number in range(1, 401)]
    candidate = learn(outcomes(rows, lambda _: NONE))
    verdict = judge(rows, SNAPSHOT, candidate, NONE)
    assert (verdict.moved, verdict.tried) == (400, 0)
    assert verdict.objection is not None
    assert "0 of the 400 judged requests that it would send elsewhere were answered there" in verdict.objection


def test_a_few_explored_answers_are_enough_where_the_gain_is_large() -> None:
    """They have large weights, which must affect the promotion only through its interval."""
    draw = random.Random(3)
    rows = [
        judged(
            number, model, float(draw.random() < (0.95 if model == "big" else 0.4)), propensity=propensity, small=0.8
        )
        for number in range(1, 601)
        for model, propensity in [("big", 0.05) if draw.random() < 0.05 else ("small", 0.95)]
    ]
    verdict = judge(rows, SNAPSHOT, learn(outcomes(rows, lambda _: NONE)), NONE)
    assert verdict.gain.mean == pytest.approx(0.55, abs=0.15)
    assert verdict.objection is None


def test_keys_that_are_equally_loud_are_as_sure_as_many_quiet_ones() -> None:
    """Four with 200 judgements each are all above the limit."""
    rows = [one._replace(voter=f"key-{number % 4}") for number, one in enumerate(traffic(0.92))]
    verdict = judge(rows, SNAPSHOT, Correction({"small": (2.0, 0.0)}), NONE)
    decisions = [one.entry.intent.decision for one in rows]
    log = [
        Logged(one.entry.model, made.propensity, one.score, made.facts.quality)
        for one, made in zip(rows, decisions, strict=True)
    ]
    plain = doubly_robust(log, lambda _: {"small": 1.0, "big": -1.0})
    assert (verdict.gain.low, verdict.gain.high) == pytest.approx((plain.low, plain.high))


def test_only_requests_that_would_go_elsewhere_say_which_is_better() -> None:
    """Requests that stay add the same randomness to both sides."""
    kept = [judged(number, "big", float(number % 2), propensity=1.0, small=0.1) for number in range(1, 2001)]
    moved = traffic(0.92)
    candidate = learn(outcomes(moved, lambda _: NONE))
    alone, among = judge(moved, SNAPSHOT, candidate, NONE), judge([*kept, *moved], SNAPSHOT, candidate, NONE)
    assert among.moved == alone.moved
    assert among.gain.mean == pytest.approx(alone.gain.mean * len(moved) / 2800, abs=1e-9)


def test_answers_of_shadow_calls_teach_and_decide_no_promotion() -> None:
    """A shadow row cannot stand for requests that were not sampled, which have none."""
    rows = traffic(0.5)
    shadows: list[Judged] = []
    for number in range(2001, 2101):
        one = judged(number, "small", 1.0, propensity=0.01)
        intent = msgspec.structs.replace(one.entry.intent, operation=SHADOW)
        shadows.append(one._replace(entry=make_entry(number, intent=intent, model="small"), weight=TRUST["shadow"]))
    candidate = Correction({"small": (2.0, 0.0)})
    assert judge([*rows, *shadows], SNAPSHOT, candidate, NONE) == judge(rows, SNAPSHOT, candidate, NONE)
    assert len(outcomes([*rows, *shadows], lambda _: NONE)) == 900


def test_a_correction_that_changes_nothing_says_so() -> None:
    verdict = judge(traffic(0.92), SNAPSHOT, Correction({"big": (0.1, 0.0)}), NONE)
    assert verdict.objection == "it would send none of 800 judged requests elsewhere"


def test_too_little_traffic_says_what_to_do() -> None:
    verdict = judge(traffic(0.92, size=60), SNAPSHOT, Correction({"small": (2.0, 0.0)}), NONE)
    assert verdict.objection is not None
    assert "gather feedback" in verdict.objection
    with pytest.raises(ValueError, match="at least two"):
        judge([], SNAPSHOT, NONE, NONE)
