"""Keys in the explorer have names; two of one name are told apart. Changes against the period before."""

from decimal import Decimal
from typing import Any

import pytest

from dashboards.pages.explorer import change_cell, labels, named, no_longer, points_over_time, table_note
from tests.unit.dashboards.views import make_view


def test_a_name_that_two_keys_have_stands_with_the_id() -> None:
    assert labels({"key_1": "chat", "key_2": "chat", "key_3": "batch"}) == {
        "key_1": "chat (key_1)",
        "key_2": "chat (key_2)",
        "key_3": "batch",
    }
    assert labels({}) == {}


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
    def row(model: str, usd: str) -> dict[str, Any]:
        return {"group": {"team": None, "model": model}, "cost_usd": usd, "requests": 2}

    now, before = [row("a", "3"), row("b", "1")], [row("a", "2"), row("c", "5")]
    gone = no_longer(now, before)
    assert [(one["group"]["model"], one["requests"], one["cost_usd"]) for one in gone] == [("c", 0, "0")]
    then = {one["group"]["model"]: Decimal(one["cost_usd"]) for one in before}
    rows = [*now, *gone]
    changes = sum(Decimal(one["cost_usd"]) - then.get(one["group"]["model"], 0) for one in rows)
    assert changes == Decimal(4) - Decimal(7)
    assert change_cell(gone[0]["cost_usd"], "5").text == "−100 %"


@pytest.mark.parametrize(
    ("dimension", "value", "shown"),
    [
        ("hour", "2026-10-01T04:00Z", "1 Oct 2026 04:00"),
        ("day", "2026-10-01", "1 Oct 2026"),
        ("month", "2026-10", "October 2026"),
        ("key", "key_1", "chat"),
        ("team", None, "none"),
        ("team", "2026-10", "2026-10"),
    ],
)
def test_a_group_is_called_as_people_call_it(dimension: str, value: str | None, shown: str) -> None:
    assert named(dimension, value, {"key_1": "chat"}) == shown


def test_groups_of_a_time_are_drawn_over_all_of_it() -> None:
    """Of thirty-one days the first twelve were drawn, under a heading that named all."""

    def row(usd: str, **group: str | None) -> dict[str, Any]:
        return {"group": group, "cost_usd": usd}

    days = [row("1.5", day=f"2026-10-{day:02}", key="key_1") for day in range(1, 32)]
    points = points_over_time(days, {"key_1": "chat"})
    assert points is not None
    assert len(points) == len(days)
    assert points[0] == ("2026-10-01T00:00:00+00:00", "chat", 1.5)
    [(start, name, _)] = points_over_time([row("2", team=None, month="2026-11")], {}) or []
    assert (start, name) == ("2026-11-01T00:00:00+00:00", "none")
    assert points_over_time([row("2", week="2026-W47")], {}) == [("2026-11-16T00:00:00+00:00", "spend", 2.0)]
    assert points_over_time([row("2", team="a", model="b")], {}) is None


def test_names_that_lead_nowhere_are_not_said_to_lead_to_requests() -> None:
    for permission, leads in (("reports.read", False), ("entries.read", True), ("team.read", True)):
        view = make_view(permission)
        assert table_note(view, ["day", "model"], view.period.before(), 0).startswith(
            "The change of the total is against"
        )
        said = table_note(view, ["model"], view.period.before(), 0)
        assert ("A name leads to its requests" in said) is leads
        assert "to another order" in said
