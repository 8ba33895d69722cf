"""Feedback becomes a correction."""

from typing import Any

import msgspec
import pytest

from classifier.online.correction import NONE, Correction, learn
from gateway.learning.correction import (
    TRUST,
    Judged,
    Word,
    by_request,
    correction_name,
    outcomes,
    routed,
    word_on,
)
from gateway.ledger.entry import SHADOW
from gateway.routing.decide import DIRECT
from gateway.stores import Feedback
from tests.unit.gateway.learning.judgements import judged
from tests.unit.gateway.ledger.builders import make_entry, make_intent


def feedback(request: str, score: float, number: int, **given: Any) -> Feedback:
    fields: dict[str, Any] = {"at_us": number, "kind": "score", "source": "caller", "key_id": "key-1"}
    return Feedback(request, score=score, number=number, **{**fields, **given})


def test_the_last_word_of_each_source_counts() -> None:
    rows = [feedback("r", 0.0, 1), feedback("r", 1.0, 2), feedback("r", 0.5, 3, source="judge"), feedback("q", 0.0, 4)]
    assert by_request(reversed(rows)) == by_request(rows) == {"r": rows[:3], "q": rows[3:]}
    word = word_on(rows[:3], "key-1")
    assert (word.is_implied, word.voter) == (False, "key-1")
    assert word.weight == pytest.approx(1.7)
    assert word.score == pytest.approx((1.0 * 1.0 + 0.7 * 0.5) / 1.7)


def test_of_several_keys_the_one_that_asked_is_heard_else_the_first() -> None:
    rows = [feedback("r", 1.0, 1, key_id="asker"), feedback("r", 0.0, 2, key_id="mate"), feedback("r", 0.8, 3)]
    assert word_on(rows, "asker") == Word(1.0, 1.0, voter="asker")
    assert word_on(rows[1:], "asker") == Word(0.0, 1.0, voter="mate"), "a third key unsays nothing"
    assert word_on([*rows, feedback("r", 0.6, 4, key_id="asker")], "asker").score == 0.6, "but one's own word"


def test_what_nobody_said_counts_only_where_nobody_said_anything() -> None:
    rows = [feedback("r", 0.0, 1, source="repeat", key_id="asker"), feedback("r", 1.0, 2)]
    assert word_on(rows, "asker") == Word(1.0, 1.0, voter="key-1")
    assert word_on(rows[:1], "asker") == Word(0.0, TRUST["repeat"], is_implied=True, voter="asker")
    of_form = [feedback("r", 0.0, 1, source="format"), feedback("r", 1.0, 2, source="repeat")]
    assert word_on(of_form, "k") == Word(0.0, TRUST["format"], True, of_asked=True, voter="key-1", of_form=True)
    of_shadow = [feedback("r", 0.5, 1, source="shadow", key_id="k")]
    assert word_on(of_shadow, SHADOW) == Word(0.5, TRUST["shadow"], True, voter="k", of_form=True), (
        "whose request it was"
    )
    of_judge = feedback("r", 0.9, 2, source="judge", key_id="k")
    assert word_on([*of_shadow, of_judge], SHADOW) == Word(0.9, TRUST["judge"], voter="k")
    assert word_on([of_judge, feedback("r", 0.9, 3)], "key-1").voter == "key-1", "who said it, if anybody did"


def test_a_cascade_teaches_of_the_model_it_asked_first_and_only_what_was_verified() -> None:
    stood = judged(1, "small", 1.0, propensity=1.0, escalates_to=("big",))
    assert routed([stood]) == [], "callers see only answers that stood"
    escalated = stood._replace(entry=make_entry(2, intent=stood.entry.intent, model="big"), score=0.0, of_asked=True)
    assert [(one.model, one.score) for one in outcomes([escalated], lambda _: NONE)] == [("small", 0.0)]


@pytest.mark.parametrize(
    ("right", "said", "learned"),
    [(0.98, None, 0.6), (0.98, 0.5, 0.51), (0.3, None, 0.32), (0.4, 0.5, 0.46), (0.55, 0.5, 0.51)],
)
def test_a_right_form_makes_no_answer_good(right: float, said: float | None, learned: float) -> None:
    """Of `small`, predicted 0.6: how often its form was right, and how good its answers were said to be."""

    def of(share: float, **given: Any) -> list[Judged]:
        good, bad = (judged(1, "small", score, propensity=1.0)._replace(**given) for score in (1.0, 0.0))
        return [good] * round(100 * share) + [bad] * round(100 * (1 - share))

    rows = of(right, of_form=True, is_implied=True, weight=0.5) + (of(said) if said is not None else [])
    assert learn(outcomes(rows, lambda _: NONE)).apply("small", 0.6, 0.25) == pytest.approx(learned, abs=0.01)


def test_only_routed_requests_that_their_model_answered_teach() -> None:
    fine = judged(1, "small", 1.0, propensity=1.0)
    fell_back = fine._replace(entry=make_entry(2, intent=fine.entry.intent, model="big"))
    unruled = msgspec.structs.replace(fine.entry.intent.decision, rule=DIRECT)
    direct = fine._replace(
        entry=make_entry(3, intent=make_intent(3, requested_model="small", decision=unruled), model="small")
    )
    assert routed([fine, fell_back, direct]) == [fine]


def test_outcomes_are_against_the_frozen_classifier_whatever_correction_was_in_force() -> None:
    correction = Correction({"small": (1.0, 0.0)})
    seen = correction.apply("small", 0.6, 0.25)
    one = judged(1, "small", 1.0, propensity=1.0, small=seen, classifier_version=f"abc+{correction.id}")
    found = outcomes([one], lambda version: correction if correction_name(version) == correction.id else NONE)
    assert found[0].quality == pytest.approx(0.6)
