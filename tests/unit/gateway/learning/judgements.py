"""Judged requests, which corrections and promotions learn from."""

from typing import Any

from gateway.learning.correction import Judged
from tests.unit.gateway.ledger.builders import make_decision, make_entry, make_facts, make_intent


def judged(number: int, model: str, score: float, *, propensity: float, small: float = 0.6, **given: Any) -> Judged:
    facts = make_facts(quality={"small": small, "big": 0.9}, output_tokens={"small": 200.0, "big": 200.0})
    decision = make_decision(
        model=model, facts=facts, propensity=propensity, candidates=("small", "big"), predicted_quality=None, **given
    )
    return Judged(make_entry(number, intent=make_intent(number, decision=decision), model=model), score, 1.0)
