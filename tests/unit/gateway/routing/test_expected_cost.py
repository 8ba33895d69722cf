"""A decision expects what the books would charge for the predicted usage, whatever kind of price a model has."""

from dataclasses import replace
from fractions import Fraction

import pytest

from backends.usage import Usage
from gateway.pricing.catalogue import Ladder, Rates, Step
from gateway.pricing.price import price
from gateway.routing.decide import decide
from tests.builders import make_candidate, make_prices, make_request, make_snapshot

FLAT = replace(make_prices(3, 15, cached_input=300_001), per_request_pico_usd=7)
LONGER = Rates(6_000_000, 30_000_000)
STEPPED = replace(FLAT, ladder=Ladder(FLAT.rates, (Step(1000, LONGER), Step(5000, Rates(7, 9)))))
MARGINAL = replace(FLAT, ladder=Ladder(FLAT.rates, (Step(1000, LONGER, is_marginal=True),)))
PRICES = {"flat": FLAT, "stepped": STEPPED, "marginal": MARGINAL, "less": replace(STEPPED, discount=Fraction(1, 7))}


@pytest.mark.parametrize("input_tokens", [1, 1000, 1001, 9999])
@pytest.mark.parametrize("warm", [0, 1, 20_000])
def test_many_models_at_once_cost_what_each_answer_would(input_tokens: int, warm: int) -> None:
    pool = [*(make_candidate(name, prices=prices) for name, prices in PRICES.items()), make_candidate("?", prices=None)]
    lengths = {"flat": 100.4, "stepped": 100.4, "marginal": 0.2}
    request = make_request(
        input_tokens=input_tokens, output_tokens=lengths, warm_tokens=dict.fromkeys(PRICES, warm) if warm else {}
    )
    usages = [
        Usage(input_tokens=input_tokens, cached_input_tokens=min(warm, input_tokens), output_tokens=output)
        for output in (100, 100, 1, 300)
    ]
    costs = [price(usage, prices).total_pico_usd for usage, prices in zip(usages, PRICES.values(), strict=True)]
    weighed = decide(request, make_snapshot(candidates=pool)).weighed
    assert [one.expected_cost_pico_usd for one in weighed] == [*costs, None]
