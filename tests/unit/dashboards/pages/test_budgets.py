"""What the page Budgets says about notices, and which of many budgets it shows."""

from typing import Any

from dashboards.list_page import MOST
from dashboards.pages.budgets import (
    Asked,
    budgets_table,
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
    assert "A budget notice is waiting to be sent" in said
    assert "Since 1 Jan 1970 00:01:00 UTC: &lt;500&gt;. Last tried 1 Jan 1970 00:03:00 UTC, again about" in said
    assert failing_note({**waits, "failing_since_us": None}) == ""


def test_of_many_budgets_those_that_have_used_most_come_first_and_all_are_reached() -> None:
    many: list[dict[str, Any]] = [{"scope": "team", "name": f"red-{n}", "spent_share": n / 1000} for n in range(2000)]
    rising = list(reversed(many))
    assert [*most_used(many, Asked()).shown, *most_used(many, Asked(page=2)).shown] == rising[: 2 * MOST]
    assert most_used(many, Asked("TEAM red-17 ")).shown == [one for one in rising if "red-17" in one["name"]][:MOST]
    assert [one["name"] for one in most_used(many, Asked("red-1234", 9)).shown] == ["red-1234"], (
        "the last page there is"
    )
    assert most_used(many[:MOST], Asked()).shown == many[:MOST], "as they come where all are shown"
    said = search(Asked('"<'), most_used(many, Asked(page=40)))
    assert "1,951 to 2,000 of 2,000, the ones that have used most first." in said
    assert 'value="&quot;&lt;"' in said
    assert 'href="budgets?find=%22%3C&amp;page=39">Previous</a>' in said
    assert ">Next<" not in said


def test_budgets_are_sorted_by_the_heading_that_was_chosen() -> None:
    def budget(name: str, month_usd: str, chance: float | None) -> dict[str, Any]:
        outlook = {"low_usd": "1", "high_usd": "2", "expected_usd": "1", "runs_out": None}
        figures: dict[str, Any] = {"month_usd": month_usd, "spent_usd": "1", "spent_share": 1 / float(month_usd)}
        known = None if chance is None else {**outlook, "probability_of_exceeding": chance}
        return {
            **figures,
            "taken_over_usd": "0",
            "scope": "team",
            "name": name,
            "keys": 1,
            "stops": 0,
            "outlook": known,
        }

    rows = [budget("b", "9", 0.5), budget("A", "10", None), budget("c", "8", 0.75)]
    orders = {"": "bAc", "name": "Abc", "-name": "cbA", "amount": "Abc", "used": "cbA", "chance": "cbA", "else": "bAc"}
    for order, names in orders.items():
        assert "".join(one["name"] for one in most_used(rows, Asked(order=order)).shown) == names, order
    table = budgets_table(rows, Asked("a b", 3, "amount"))
    assert 'aria-sort="descending"><a href="budgets?find=a+b&amp;order=-amount">A' in table
    assert '<a href="budgets?find=a+b&amp;order=used">Used' in table
    said = search(Asked(order="-name"), most_used(rows * MOST, Asked(order="-name")))
    assert 'href="budgets?page=2&amp;order=-name">Next</a>' in said
    assert "used most" not in said


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
