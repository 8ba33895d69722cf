"""Claims about self-hosting that circulate, each computed instead of repeated.

Prices are the ones that the claims were made about, in dollars per million tokens; they are part of the claim and
no price of this project's catalogue.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from gateway.economics.gpu_cost import HOURS_30_DAYS

TOKENS_PER_MTOK = 1e6


@dataclass(frozen=True, slots=True)
class TokenPrice:
    input_usd_per_mtok: float
    output_usd_per_mtok: float

    def usd(self, input_tokens: float, output_tokens: float) -> float:
        total = input_tokens * self.input_usd_per_mtok + output_tokens * self.output_usd_per_mtok
        return total / TOKENS_PER_MTOK

    def blended_usd_per_mtok(self, input_tokens: float, output_tokens: float) -> float:
        """Per million tokens at this mix of input and output."""
        return self.usd(input_tokens, output_tokens) / (input_tokens + output_tokens) * TOKENS_PER_MTOK


MINI = TokenPrice(0.15, 0.60)
LARGE = TokenPrice(2.50, 10.0)
LARGER = TokenPrice(3.0, 15.0)
MIX = (500.0, 300.0)
"""Input and output tokens of the request that the claims speak of."""


@dataclass(frozen=True, slots=True)
class Verdict:
    claim: str
    holds: bool
    figures: dict[str, float]
    because: str

    def __str__(self) -> str:
        return f"“{self.claim}” {'holds' if self.holds else 'does not hold'}: {self.because}"


def check_a100_against_mini() -> Verdict:
    usd_per_hour, tokens_per_second, usage = 2.0, 100.0, 0.5
    always_on = usd_per_hour * HOURS_30_DAYS
    tokens = tokens_per_second * usage * HOURS_30_DAYS * 3600
    claimed = always_on * usage
    mini = MINI.blended_usd_per_mtok(*MIX) * 100
    large = LARGE.blended_usd_per_mtok(*MIX)
    figures = {
        "always_on_usd": always_on,
        "output_mtok": tokens / TOKENS_PER_MTOK,
        "usd_per_mtok_if_off_half_the_time": claimed / tokens * TOKENS_PER_MTOK,
        "usd_per_mtok_always_on": always_on / tokens * TOKENS_PER_MTOK,
        "mini_100_mtok_all_input_usd": MINI.input_usd_per_mtok * 100,
        "mini_100_mtok_all_output_usd": MINI.output_usd_per_mtok * 100,
        "mini_100_mtok_usd": mini,
        "off_by": claimed / mini,
        "large_blended_usd_per_mtok": large,
        "large_mtok_for_the_money": claimed / large,
        "mini_break_even_tokens_per_second": usd_per_hour / 3600 / MINI.output_usd_per_mtok * TOKENS_PER_MTOK,
    }
    return Verdict(
        "an A100 at $2/h and 100 tok/s, half used, is about $720 a month, or 100M tokens of GPT-4o mini",
        not figures["off_by"] > 2,
        figures,
        f"always on it is ${always_on:,.0f}; 100M mini tokens cost ${mini:.2f}, so the claim is off by"
        f" {figures['off_by']:.1f}×. Against mini's output price alone it takes"
        f" {figures['mini_break_even_tokens_per_second']:.1f} tok/s, fully used, to break even; against GPT-4o the"
        f" money buys {figures['large_mtok_for_the_money']:.1f}M tokens, and there the claim is roughly right.",
    )


def check_100k_queries_a_day() -> Verdict:
    requests = 100_000 * 30
    mini, large, larger = (price.usd(*MIX) * requests for price in (MINI, LARGE, LARGER))
    return Verdict(
        "100,000 queries a day of 500 in and 300 out cost $4,000 to $16,000 a month",
        mini >= 4000 and larger <= 16000,
        {"mini_usd": mini, "large_usd": large, "larger_usd": larger},
        f"${mini:,.0f} on a mini model, ${large:,.0f} on GPT-4o, ${larger:,.0f} at $3/$15: the model decides.",
    )


def check_thresholds_agree() -> Verdict:
    requests = 500_000 * 30
    mini, large = (price.usd(*MIX) * requests for price in (MINI, LARGE))
    return Verdict(
        "self-host above 500,000 requests a day, which is $10,000 to $30,000 a month",
        10_000 <= mini <= 30_000 and 10_000 <= large <= 30_000,
        {"mini_usd": mini, "large_usd": large},
        f"500,000 a day are ${mini:,.0f} a month on mini and ${large:,.0f} on GPT-4o; dollars are the better axis.",
    )


def check_output_price_spread() -> Verdict:
    spread = 25 / 0.28
    return Verdict(
        "output prices differ 90× between top and bottom",
        round(spread, -1) == 90,
        {"spread": spread, "orders_of_magnitude": math.log10(spread)},
        f"25/0.28 = {spread:.1f}. That is {math.log10(spread):.2f} orders of magnitude, so not “more than two”.",
    )


def check_total_latency() -> Verdict:
    """One worked case is enough to refute an identity: 101 tokens, the first after 0.5 s, then one every 20 ms."""
    first, gap, tokens = 0.5, 0.02, 101
    actual = first + gap * (tokens - 1)
    decode_tokens_per_second = (tokens - 1) / (actual - first)
    claimed = first + tokens / decode_tokens_per_second
    right = first + (tokens - 1) / decode_tokens_per_second
    return Verdict(
        "total latency = time to first token + output ÷ throughput",
        math.isclose(claimed, actual),
        {"claimed_seconds": claimed, "actual_seconds": actual, "with_output_minus_one_seconds": right},
        "throughput measured after the first token has one token fewer to carry: use output − 1.",
    )


def check_mini_is_17_times_cheaper() -> Verdict:
    ratio = LARGE.input_usd_per_mtok / MINI.input_usd_per_mtok
    return Verdict(
        "GPT-4o mini is 17× cheaper than GPT-4o",
        round(ratio) == 17,
        {"ratio": ratio},
        f"2.50/0.15 = {ratio:.2f}, and 10/0.60 is the same.",
    )


CHECKS: tuple[Callable[[], Verdict], ...] = (
    check_a100_against_mini,
    check_100k_queries_a_day,
    check_thresholds_agree,
    check_output_price_spread,
    check_total_latency,
    check_mini_is_17_times_cheaper,
)
