"""What the page Budgets says of notices, and which of many budgets it shows."""

from typing import Any

from dashboards.pages.budgets import (
    MOST_BUDGETS,
    days_table,
    failing_note,
    most_used,
    search,
    spent,
    taken_over_note,
)
from tests.unit.dashboards.views import cells_of

MINUTE = 60_000_000


def test_only_a_notice_that_waits_is_spoken_of() -> None:
    waits = {"failing_since_us": MINUTE, "failed_at_us": 3 * MINUTE, "next_try_at_us": 4 * MINUTE, "problem": "<500>"}
    said = failing_note(waits)
    assert "A notice of a budget waits to be sent" in said
    assert "Since 1 Jan 1970 00:01:00 UTC: &lt;500&gt;. Last tried 1 Jan 1970 00:03:00 UTC, again about" in said
    assert failing_note({**waits, "failing_since_us": None}) == ""


def test_of_many_budgets_those_that_have_used_most_are_shown_and_all_are_found() -> None:
    many: list[dict[str, Any]] = [{"scope": "team", "name": f"red-{n}", "spent_share": n / 1000} for n in range(2000)]
    shown = most_used(many, "")
    assert [one["name"] for one in shown] == [f"red-{n}" for n in range(1999, 1999 - MOST_BUDGETS, -1)]
    assert most_used(many, "TEAM red-17 ") == [one for one in reversed(many) if "red-17" in one["name"]][:MOST_BUDGETS]
    assert [one["name"] for one in most_used(many, "red-1234")] == ["red-1234"]
    assert most_used(many[:MOST_BUDGETS], "") == many[:MOST_BUDGETS], "as they come where all are shown"
    assert "50 of 2,000 budgets" in search('"<', 50, 2000)
    assert 'value="&quot;&lt;"' in search('"<', 50, 2000)


def test_what_was_spent_at_litellm_is_told_apart() -> None:
    rows = [{"spent_usd": "9.5", "taken_over_usd": there} for there in ("2.25", "0.000000000000")]
    assert spent(rows[0]).title == "of it $2.25 taken over from LiteLLM"
    assert spent(rows[1]).title == ""
    said = taken_over_note(["Team <red>", "Team blue"], rows)
    assert "taken over from LiteLLM: $2.25 of Team &lt;red&gt;. It counts until the window ends" in said
    assert taken_over_note(["Team blue"], rows[1:]) == ""
    assert "and of 2 more" in taken_over_note(["Team red"] * 7, rows[:1] * 7)


def test_the_chart_of_the_days_is_a_table_too() -> None:
    found: dict[str, Any] = {
        "history": [{"day": "2026-03-04", "cost_usd": "1.5"}],
        "days": [{"day": "2026-03-05", "expected_usd": "2", "low_usd": "1", "high_usd": "4"}],
    }
    assert cells_of(days_table(found)) == [
        ["4 Mar 2026", "$1.50", "–", "–", "–"],
        ["5 Mar 2026", "–", "$2.00", "$1.00", "$4.00"],
    ]
