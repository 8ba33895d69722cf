"""Facts are rounded as stored, so that a decision replayed from the ledger sees the same figures."""

import random

from classifier.protocol import Classification, Quality
from gateway.ledger.entry import Facts
from gateway.request.facts import gather_facts
from gateway.request.view import parse_request
from gateway.rulebook.state import RuleState

VIEW = parse_request("chat.completions", b'{"model": "auto", "messages": [{"role": "user", "content": "Hello."}]}')
DRAWN = random.Random(20261122)
SHARES = (0.0, 1.0, 1e-9, 0.99995001, *(DRAWN.random() for _ in range(1_000)))


def gathered(found: Classification) -> Facts:
    return gather_facts(VIEW, found, {"model": None}, warm_tokens={}, backend_state={}, draw=0.0, rules=RuleState())


def classified(share: float, output_tokens: float) -> Classification:
    return Classification(share, share, {"model": Quality(share, 0.1)}, {"model": output_tokens})


def test_shares_have_four_decimals_and_lengths_one() -> None:
    for share in SHARES:
        facts, rounded = gathered(classified(share, share * 4000.0)), round(share, 4)
        assert (facts.difficulty, facts.uncertainty, facts.quality) == (rounded, rounded, {"model": rounded})
        assert facts.output_tokens == {"model": round(share * 4000.0, 1)}


def test_a_figure_that_is_no_number_refuses_nobody() -> None:
    assert str(gathered(classified(float("nan"), 1.0)).difficulty) == "nan"
