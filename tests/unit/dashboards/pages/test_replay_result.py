"""What is said about a replay: in words first, with signs, and about which requests."""

from typing import Any

import pytest

from dashboards.pages.replay_result import in_words, replay_result


def found(**changes: Any) -> dict[str, Any]:
    return {
        "since": "2026-11-15T00:00:00+00:00",
        "until": "2026-11-22T00:00:00+00:00",
        "requests": 1200,
        "moved_requests": 300,
        "refused_requests": 0,
        "unpriced_requests": 0,
        "cost_before_usd": "2.000000000000",
        "cost_after_usd": "3.000000000000",
        "quality_before": 0.5,
        "quality_after": None,
        "time_to_first_token_before_seconds": 0.5,
        "time_to_first_token_after_seconds": None,
        "moves": [
            {"from_model": "a", "to_model": "b", "requests": 300, "unpriced_requests": 0, "cost_change_usd": "1"}
        ],
        "notes": [],
        **changes,
    }


MOVED = "300 of 1,200 requests would have gone to another model."


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, f"{MOVED} That costs $1.00 more: $3.00 instead of $2.00."),
        ({"cost_after_usd": "1.5"}, f"{MOVED} That costs $0.500 less: $1.50 instead of $2.00."),
        ({"cost_after_usd": "2"}, f"{MOVED} That costs $2.00 as before."),
        ({"moved_requests": 0}, "Your edit would send none of these 1,200 requests elsewhere."),
        (
            {"refused_requests": 1, "cost_after_usd": "0"},
            f"{MOVED} 1 request would have been refused. All others cost $2.00 less: $0.00 instead of $2.00.",
        ),
        (
            {"unpriced_requests": 7, "cost_after_usd": "0"},
            f"{MOVED} 7 requests have no known price, before or after. "
            "All others cost $2.00 less: $0.00 instead of $2.00.",
        ),
        (
            {"refused_requests": 1000, "unpriced_requests": 200, "cost_before_usd": "0", "cost_after_usd": "0"},
            f"{MOVED} 1,000 requests would have been refused. 200 requests have no known price, before or after.",
        ),
    ],
)
def test_the_answer_in_a_sentence(changes: dict[str, Any], said: str) -> None:
    assert in_words(found(**changes)) == said


@pytest.mark.parametrize(
    ("changes", "tone"),
    [({}, "bad"), ({"cost_after_usd": "1"}, "good"), ({"cost_after_usd": "2", "refused_requests": 2}, "")],
)
def test_a_cost_that_changes_is_coloured(changes: dict[str, Any], tone: str) -> None:
    shown = replay_result(found(**changes))
    assert f'<div class="be-tile {tone}"><div class="be-tile-label">Cost</div>' in shown


@pytest.mark.parametrize(
    ("move", "said"),
    [
        ({}, ">+$1.00<"),
        ({"cost_change_usd": "-1"}, ">−$1.00<"),
        ({"cost_change_usd": "0", "unpriced_requests": 300}, ">unknown<"),
        ({"unpriced_requests": 20}, ">+$1.00, 20 of them unknown<"),
    ],
)
def test_a_move_of_unknown_price_costs_no_zero(move: dict[str, Any], said: str) -> None:
    [usual] = found()["moves"]
    assert said in replay_result(found(moves=[{**usual, **move}]))


def test_no_traffic_says_where_some_comes_from() -> None:
    assert "<code>breakeven demo FILE</code>" in replay_result(found(requests=0))
