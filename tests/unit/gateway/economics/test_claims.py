"""Each circulating claim's verdict, printed (pytest -s) and asserted at the precision of docs/economics.md."""

import pytest

from gateway.economics import claims
from gateway.economics.claims import CHECKS


def test_each_verdict_is_a_sentence_that_can_be_read_alone() -> None:
    for check in CHECKS:
        print(check())
        assert check().claim in str(check())


def test_an_a100_is_not_100m_tokens_of_mini() -> None:
    verdict = claims.check_a100_against_mini()
    figures = verdict.figures
    assert not verdict.holds
    assert figures["always_on_usd"] == 1440
    assert figures["output_mtok"] == pytest.approx(129.6)
    assert round(figures["usd_per_mtok_if_off_half_the_time"], 2) == 5.56
    assert round(figures["usd_per_mtok_always_on"], 2) == 11.11
    assert (figures["mini_100_mtok_all_input_usd"], figures["mini_100_mtok_all_output_usd"]) == (15, 60)
    assert figures["mini_100_mtok_usd"] == pytest.approx(31.875)
    assert round(figures["off_by"], 1) == 22.6
    assert figures["large_blended_usd_per_mtok"] == 5.3125
    assert round(figures["large_mtok_for_the_money"], 1) == 135.5
    assert round(figures["mini_break_even_tokens_per_second"], 1) == 925.9


def test_100k_queries_a_day() -> None:
    verdict = claims.check_100k_queries_a_day()
    assert not verdict.holds
    assert [round(value) for value in verdict.figures.values()] == [765, 12_750, 18_000]


def test_the_two_thresholds_contradict_each_other() -> None:
    verdict = claims.check_thresholds_agree()
    assert not verdict.holds
    assert [round(value) for value in verdict.figures.values()] == [3825, 63_750]


def test_the_price_spread_holds_but_is_under_two_orders_of_magnitude() -> None:
    verdict = claims.check_output_price_spread()
    assert verdict.holds
    assert round(verdict.figures["spread"], 1) == 89.3
    assert round(verdict.figures["orders_of_magnitude"], 2) == 1.95


def test_total_latency_counts_one_token_less() -> None:
    verdict = claims.check_total_latency()
    assert not verdict.holds
    assert verdict.figures["with_output_minus_one_seconds"] == pytest.approx(verdict.figures["actual_seconds"])
    assert verdict.figures["claimed_seconds"] > verdict.figures["actual_seconds"]


def test_mini_is_17_times_cheaper() -> None:
    verdict = claims.check_mini_is_17_times_cheaper()
    assert verdict.holds
    assert round(verdict.figures["ratio"], 2) == 16.67
