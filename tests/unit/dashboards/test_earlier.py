"""Comparison with the period before, unless the books cover only a part of it."""

from datetime import UTC, datetime
from typing import Any

import pytest

from dashboards.display import UNKNOWN
from dashboards.earlier import change_cell, compared, earlier_of
from dashboards.periods import Period

MARCH = Period("", datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 3, 31, tzinfo=UTC))
BEFORE = MARCH.before()


def row(model: str, usd: str) -> dict[str, Any]:
    return {"group": {"team": None, "model": model}, "cost_usd": usd, "requests": 2, "unpriced_requests": 0}


@pytest.mark.parametrize(
    ("now", "before", "shown"),
    [
        ("1.5", "1", "+50 %"),
        ("0.5", "1", "−50 %"),
        ("0.998", "1", "0 %"),
        ("1.002", "1", "0 %"),
        ("20", "1", "over 10 ×"),
        ("1", None, "new"),
        ("1", "0", "–"),
        ("unknown", "1", "–"),
        ("1", "unknown", "–"),
    ],
)
def test_a_change_that_rounds_to_nothing_has_no_sign(now: str, before: str | None, shown: str) -> None:
    assert change_cell(now, before).text == shown


def test_pointing_at_a_change_shows_what_was_spent_before() -> None:
    assert change_cell("3", "1.250000000000").title == "$1.25 before"
    assert change_cell("3", None).title == ""
    assert change_cell("unknown", "1.250000000000").title == "$1.25 before"
    assert change_cell("3", "unknown").title == "price unknown before"


@pytest.mark.parametrize(
    ("begin", "is_whole", "is_cut", "said"),
    [
        ("2026-01-01T00:00:00Z", True, False, None),
        ("2026-01-30T00:00:00Z", True, False, None),
        ("2026-01-30T01:00:00Z", False, True, "on 30 Jan 2026 01:00 UTC, 1 hour into the period before"),
        ("2026-01-31T09:00:00Z", False, True, "33 hours into the period before"),
        (
            "2026-02-11T08:00:00Z",
            False,
            True,
            "12 days into the period before (30 Jan 2026 00:00 – 1 Mar",
        ),
        ("2026-03-01T00:00:00Z", False, False, "on 1 Mar 2026 00:00 UTC: there is no earlier period to compare with."),
        ("2026-03-20T07:00:00Z", False, False, "there is no earlier period to compare with."),
        (None, False, False, "There is no earlier period to compare with."),
    ],
)
def test_only_a_time_that_the_books_hold_all_of_is_compared_with(
    begin: str | None, is_whole: bool, is_cut: bool, said: str | None
) -> None:
    """Thirty days used to be compared with the only two booked of the thirty before: +1,400 %, which means nothing."""
    earlier = earlier_of(MARCH, begin)
    assert (earlier.period, earlier.is_whole, earlier.is_cut) == (BEFORE, is_whole, is_cut)
    if said is not None:
        assert said in earlier.why_not()


def report(*rows: dict[str, Any], before: dict[str, Any] | None) -> dict[str, Any]:
    return {"rows": list(rows), "earlier": before}


def test_groups_are_compared_with_what_they_cost_before() -> None:
    before = {"total": row("", "1"), "is_by_group": True, "rows": [row("a", "1"), None], "others": row("", "4")}
    against = compared(report(row("a", "3"), row("b", "3"), before=before))
    assert against.change(row("a", "3")).text == "+200 %"
    assert against.change(row("b", "3")).text == "new"
    assert (against.total, against.others) == ("1", "4")


def test_of_a_time_that_the_books_hold_a_part_of_nothing_is_compared() -> None:
    against = compared(report(row("a", "3"), before=None))
    assert against.change(row("a", "3")).text == UNKNOWN
    assert (against.total, against.others) == (None, None)


def test_of_days_the_total_alone_is_compared() -> None:
    before = {"total": row("", "1"), "is_by_group": False, "rows": [None], "others": None}
    against = compared(report(row("a", "3"), before=before))
    assert against.change(row("a", "3")).text == UNKNOWN
    assert against.total == "1"
