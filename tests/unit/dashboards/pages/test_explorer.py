"""Keys in the explorer have names; two of one name are told apart. What the table says it is compared with."""

from datetime import timedelta
from typing import Any

import pytest

from dashboards.earlier import Earlier
from dashboards.pages.explorer import labels, named, points_over_time, table_note
from tests.unit.dashboards.views import make_view


def test_a_name_that_two_keys_have_stands_with_the_id() -> None:
    assert labels({"key_1": "chat", "key_2": "chat", "key_3": "batch"}) == {
        "key_1": "chat (key_1)",
        "key_2": "chat (key_2)",
        "key_3": "batch",
    }
    assert labels({}) == {}


def test_names_of_many_keys_are_counted_once_and_not_for_each() -> None:
    """Of 5,000 keys it took the page 0.4 s; of so many as here, minutes."""
    names = {f"key_{number}": f"app {number}" for number in range(100_000)}
    assert labels(names) == names


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
        earlier = Earlier(view.period.before(), view.period.before().since)
        assert table_note(view, ["day", "model"], earlier, 0).startswith("The change of the total is against")
        said = table_note(view, ["model"], earlier, 0)
        assert ("A name leads to its requests" in said) is leads
        assert "to another order" in said


def test_a_table_that_is_compared_with_nothing_says_since_when_there_are_books() -> None:
    view = make_view("reports.read")
    before = view.period.before()
    said = table_note(view, ["model"], Earlier(before, before.since + timedelta(days=12)), 0)
    assert said.startswith("The books begin on ")
    assert "pointing at it" not in said
    assert "A heading leads to another order." in said
