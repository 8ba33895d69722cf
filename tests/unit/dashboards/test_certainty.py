"""Banners of a sum of costs: the part that nobody bills, what is left out, and its bounds."""

import re
from html import unescape
from typing import Any

import pytest

from dashboards import certainty

EXACT: dict[str, Any] = {
    "requests": 10,
    "simulated_requests": 0,
    "simulated_usd": "0.000000000000",
    "unpriced_requests": 0,
    "estimated_requests": 0,
    "corrections_usd": "0.000000000000",
    "cost_lower_usd": "5.000000000000",
    "cost_upper_usd": "5.000000000000",
}


def test_what_is_exact_needs_no_words() -> None:
    assert certainty.simulated(EXACT) == certainty.left_out(EXACT) == ""


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"simulated_requests": 10, "simulated_usd": "5"}, "All of these requests are simulated, at list"),
        ({"simulated_requests": 2, "simulated_usd": "1.25"}, "2 of these requests, $1.25 of the spend, are sim"),
        ({"simulated_usd": "0.5"}, "0 of these requests, $0.500 of the spend, are"),
    ],
)
def test_simulated_spend_is_told_in_dollars(changed: dict[str, Any], said: str) -> None:
    assert said in certainty.simulated({**EXACT, **changed})


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"unpriced_requests": 1200}, "No price is known for 1,200 of these requests: they are in no sum here."),
        ({"unpriced_requests": 1}, "prices per million tokens take all of them for equally long."),
        ({"estimated_requests": 3}, "estimated for 3 of these requests, whose provider reported no usage."),
        ({"cost_lower_usd": "4", "cost_upper_usd": "7"}, "the spend is at least $4.00 and at most $7.00.<"),
        ({"cost_upper_usd": None}, "at least $5.00; some of it has no upper bound.<"),
        ({"cost_lower_usd": "4", "corrections_usd": "-1.5"}, "at most $5.00, corrections of −$1.50 left out.<"),
    ],
)
def test_what_is_left_out_or_estimated_is_told(changed: dict[str, Any], said: str) -> None:
    assert said in certainty.left_out({**EXACT, **changed})


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"requests": 1, "unpriced_requests": 0}, "1 request in this time, and none cost anything."),
        ({"requests": 3, "unpriced_requests": 2}, "3 requests in this time, of which 2 without a known price."),
    ],
)
def test_a_chart_of_nothing_is_a_sentence(changed: dict[str, Any], said: str) -> None:
    assert said in certainty.nothing_spent({**EXACT, **changed})


@pytest.mark.parametrize(
    ("shadow", "judge", "unallocated", "said"),
    [
        ("0", "0", "0", ""),
        ("0", "0", "1", "10.0 % of the spend ($1.00) belongs to no team. Give its keys a team to allocate it."),
        (
            "0.5", "0.25", "0.75",
            "Of this spend, shadow calls cost $0.500 and the judge of their answers cost $0.250: the gateway's own "
            "requests, which belong to no team.",
        ),
        (
            "0.5", "0", "1.5",
            "Of this spend, shadow calls cost $0.500: the gateway's own requests, which belong to no team."
            "10.0 % of the spend ($1.00) belongs to no team. Give its keys a team to allocate it.",
        ),
    ],
)  # fmt: skip
def test_only_keys_can_be_given_a_team(shadow: str, judge: str, unallocated: str, said: str) -> None:
    """Shadow calls and their judge have none, and were told as spend whose keys want a team."""
    found = {"shadow_usd": shadow, "judge_usd": judge, "unallocated_usd": unallocated, "total": {"cost_usd": "10"}}
    banners = certainty.off_path(found) + certainty.without_team(found, "explorer?by=key")
    assert unescape(re.sub("<[^>]+>", "", banners)) == said
