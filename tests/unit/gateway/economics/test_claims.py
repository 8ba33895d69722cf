"""Claims about self-hosting that circulate, each computed instead of repeated: the verdicts are printed (pytest -s) and
asserted at the precision of docs/economics.md.

Prices are those that the claims were made about, in dollars per million tokens, and none of the catalogue's.
"""

import math

import pytest

from gateway.economics.gpu_cost import HOURS_30_DAYS

MINI, LARGE, LARGER = (0.15, 0.60), (2.50, 10.0), (3.0, 15.0)
"""Prices of input and of output."""
INPUT_TOKENS, OUTPUT_TOKENS = 500, 300
"""Tokens of the request that the claims are about."""


def request_usd(price: tuple[float, float]) -> float:
    return (INPUT_TOKENS * price[0] + OUTPUT_TOKENS * price[1]) / 1e6


def blended_usd_per_mtok(price: tuple[float, float]) -> float:
    return request_usd(price) / (INPUT_TOKENS + OUTPUT_TOKENS) * 1e6


def say(claim: str, because: str, *, holds: bool = False) -> None:
    print(f"“{claim}” {'holds' if holds else 'does not hold'}: {because}")


def test_an_a100_is_not_100m_tokens_of_mini() -> None:
    always_on_usd = 2.0 * HOURS_30_DAYS
    output_mtok = 100.0 * 0.5 * HOURS_30_DAYS * 3600 / 1e6
    claimed_usd = always_on_usd / 2
    assert (always_on_usd, output_mtok) == (1440, pytest.approx(129.6))
    assert round(claimed_usd / output_mtok, 2) == 5.56
    assert round(always_on_usd / output_mtok, 2) == 11.11
    mini_usd = 100 * blended_usd_per_mtok(MINI)
    assert mini_usd == pytest.approx(31.875)
    off_by = claimed_usd / mini_usd
    assert round(off_by, 1) == 22.6
    assert blended_usd_per_mtok(LARGE) == 5.3125
    large_mtok = claimed_usd / blended_usd_per_mtok(LARGE)
    assert round(large_mtok, 1) == 135.5
    tokens_per_second = 2.0 / 3600 / MINI[1] * 1e6
    assert round(tokens_per_second, 1) == 925.9
    say(
        "an A100 at $2/h and 100 tok/s, half used, is about $720 a month, or 100M tokens of GPT-4o mini",
        f"always on it is ${always_on_usd:,.0f}; 100M mini tokens cost ${mini_usd:.2f}, so the claim is off by"
        f" {off_by:.1f}×. Against mini's output price alone it takes {tokens_per_second:.1f} tok/s, fully used, to"
        f" break even; against GPT-4o the money buys {large_mtok:.1f}M tokens, and there the claim is roughly right.",
    )


def test_100k_queries_a_day() -> None:
    mini, large, larger = (request_usd(price) * 100_000 * 30 for price in (MINI, LARGE, LARGER))
    assert [round(mini), round(large), round(larger)] == [765, 12_750, 18_000]
    say(
        "100,000 queries a day of 500 in and 300 out cost $4,000 to $16,000 a month",
        f"${mini:,.0f} on a mini model, ${large:,.0f} on GPT-4o, ${larger:,.0f} at $3/$15: the model decides.",
    )


def test_the_two_thresholds_contradict_each_other() -> None:
    mini, large = (request_usd(price) * 500_000 * 30 for price in (MINI, LARGE))
    assert [round(mini), round(large)] == [3825, 63_750]
    say(
        "self-host above 500,000 requests a day, which is $10,000 to $30,000 a month",
        f"500,000 a day are ${mini:,.0f} a month on mini and ${large:,.0f} on GPT-4o; dollars are the better axis.",
    )


def test_the_price_spread_holds_but_is_under_two_orders_of_magnitude() -> None:
    spread = 25 / 0.28
    assert round(spread, 1) == 89.3
    assert round(math.log10(spread), 2) == 1.95
    say(
        "output prices differ 90× between top and bottom",
        f"25/0.28 = {spread:.1f}. That is {math.log10(spread):.2f} orders of magnitude, so not “more than two”.",
        holds=True,
    )


def test_total_latency_counts_one_token_less() -> None:
    """One worked case is enough to refute an identity: 101 tokens, the first after 0.5 s, then one every 20 ms."""
    first, gap, tokens = 0.5, 0.02, 101
    actual = first + gap * (tokens - 1)
    tokens_per_second = (tokens - 1) / (actual - first)
    assert first + tokens / tokens_per_second > actual
    assert first + (tokens - 1) / tokens_per_second == pytest.approx(actual)
    say(
        "total latency = time to first token + output ÷ throughput",
        "throughput measured after the first token has one token fewer to carry: use output − 1.",
    )


def test_mini_is_17_times_cheaper() -> None:
    ratio = LARGE[0] / MINI[0]
    assert round(ratio, 2) == 16.67
    say("GPT-4o mini is 17× cheaper than GPT-4o", f"2.50/0.15 = {ratio:.2f}, and 10/0.60 is the same.", holds=True)
