"""What is told against the time before, and that a time which the books hold a part of is not."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from dashboards.display import UNKNOWN
from dashboards.earlier import Earlier, change_cell, compared, earlier_of, no_longer
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


def test_groups_that_ceased_stand_below_the_others_so_that_changes_add_up() -> None:
    now, before = [row("a", "3"), row("b", "1")], [row("a", "2"), row("c", "5")]
    gone = no_longer(now, before)
    assert [(one["group"]["model"], one["requests"], one["cost_usd"]) for one in gone] == [("c", 0, "0")]
    then = {one["group"]["model"]: Decimal(one["cost_usd"]) for one in before}
    rows = [*now, *gone]
    changes = sum(Decimal(one["cost_usd"]) - then.get(one["group"]["model"], 0) for one in rows)
    assert changes == Decimal(4) - Decimal(7)
    assert change_cell(gone[0]["cost_usd"], "5").text == "−100 %"


@pytest.mark.parametrize(
    ("begin", "is_whole", "is_cut", "said"),
    [
        ("2026-01-01T00:00:00Z", True, False, None),
        ("2026-01-30T00:00:00Z", True, False, None),
        ("2026-01-30T01:00:00Z", False, True, "on 30 Jan 2026 01:00 UTC, 1 hour into the time before"),
        ("2026-01-31T09:00:00Z", False, True, "33 hours into the time before"),
        (
            "2026-02-11T08:00:00Z",
            False,
            True,
            "12 days into the time before (30 Jan 2026 00:00 – 1 Mar",
        ),
        ("2026-03-01T00:00:00Z", False, False, "on 1 Mar 2026 00:00 UTC: there is no time before to compare with."),
        ("2026-03-20T07:00:00Z", False, False, "there is no time before to compare with."),
        (None, False, False, "There is no time before to compare with."),
    ],
)
def test_only_a_time_that_the_books_hold_all_of_is_compared_with(
    begin: str | None, is_whole: bool, is_cut: bool, said: str | None
) -> None:
    """Spend of thirty days against that of the two that were booked of the thirty before: +1,400 %, of nothing."""
    earlier = earlier_of(MARCH, begin)
    assert (earlier.period, earlier.is_whole, earlier.is_cut) == (BEFORE, is_whole, is_cut)
    if said is not None:
        assert said in earlier.why_not()
    before = {"rows": [row("a", "1")], "total": row("", "1")}
    against = compared(before, earlier, is_by_group=True)
    assert against.change(row("a", "3")).text == ("+200 %" if is_whole else UNKNOWN)
    assert against.change(row("b", "3")).text == ("new" if is_whole else UNKNOWN)
    assert against.change_of_total(row("", "3")).text == ("+200 %" if is_whole else UNKNOWN)


def test_of_days_the_total_alone_is_compared() -> None:
    against = compared({"rows": [], "total": row("", "1")}, Earlier(BEFORE, BEFORE.since), is_by_group=False)
    assert against.change(row("a", "3")).text == UNKNOWN
    assert against.change_of_total(row("", "3")).text == "+200 %"
    late = Earlier(BEFORE, BEFORE.since + timedelta(hours=1))
    assert compared({"rows": [], "total": row("", "1")}, late, is_by_group=False).total is None
