"""Names of keys in the explorer, also if two have the same one; and what the table says it is compared with."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from dashboards.earlier import Earlier, compared
from dashboards.gateway_client import GatewayClient
from dashboards.pages.explorer import cost_table, labels, named, points_over_time, read_report, table_note
from dashboards.periods import parse_period
from dashboards.row_order import Order
from dashboards.table_part import TablePart
from tests.unit.dashboards.views import make_view


def test_a_name_that_two_keys_have_stands_with_the_id() -> None:
    assert labels({"key_1": "chat", "key_2": "chat", "key_3": "batch"}) == {
        "key_1": "chat (key_1)",
        "key_2": "chat (key_2)",
        "key_3": "batch",
    }
    assert labels({}) == {}


def test_names_of_many_keys_are_counted_once_and_not_for_each() -> None:
    """With 5,000 keys this used to take 0.4 s; with as many as here, minutes."""
    names = {f"key_{number}": f"app {number}" for number in range(100_000)}
    assert labels(names) == names


@pytest.mark.parametrize(
    ("dimension", "value", "shown"),
    [
        ("hour", "2026-10-01T04:00Z", "1 Oct 2026 04:00"),
        ("day", "2026-10-01", "1 Oct 2026"),
        ("month", "2026-10", "October 2026"),
        ("key", "key_1", "chat"),
        ("key", "", "(none)"),
        ("team", None, "(none)"),
        ("team", "none", "none"),
        ("team", "2026-10", "2026-10"),
    ],
)
def test_a_group_is_called_as_people_call_it(dimension: str, value: str | None, shown: str) -> None:
    assert named(dimension, value, {"key_1": "chat"}) == shown


def test_groups_of_a_time_are_drawn_over_all_of_it() -> None:
    """Only the first twelve of thirty-one days used to be drawn, under a heading that named all."""

    def row(usd: str, **group: str | None) -> dict[str, Any]:
        return {"group": group, "cost_usd": usd}

    days = [row("1.5", day=f"2026-10-{day:02}", key="key_1") for day in range(1, 32)]
    points = points_over_time(days, {"key_1": "chat"})
    assert points is not None
    assert len(points) == len(days)
    assert points[0] == ("2026-10-01T00:00:00+00:00", "chat", 1.5)
    [(start, name, _)] = points_over_time([row("2", team=None, month="2026-11")], {}) or []
    assert (start, name) == ("2026-11-01T00:00:00+00:00", "(none)")
    assert points_over_time([row("2", week="2026-W47")], {}) == [("2026-11-16T00:00:00+00:00", "spend", 2.0)]
    assert points_over_time([row("2", team="a", model="b")], {}) is None


def test_names_that_lead_nowhere_are_not_said_to_lead_to_requests() -> None:
    for permission, leads in (("reports.read", False), ("entries.read", True), ("team.read", True)):
        view = make_view(permission)
        earlier = Earlier(view.period.before(), view.period.before().since)
        assert table_note(view, ["day", "model"], earlier, 0).startswith("The change of the total is against")
        said = table_note(view, ["model"], earlier, 0)
        assert ("Click a name for its requests" in said) is leads
        assert "to sort by it" in said
        assert "Click a heading to sort by it." in table_note(view, ["operation"], earlier, 0), (
            "no list is by operation"
        )


def test_a_table_that_is_compared_with_nothing_says_since_when_there_are_books() -> None:
    view = make_view("reports.read")
    before = view.period.before()
    said = table_note(view, ["model"], Earlier(before, before.since + timedelta(days=12)), 0)
    assert said.startswith("The books begin on ")
    assert "pointing at it" not in said
    assert "Click a heading to sort by it." in said


class Reports(GatewayClient):
    """A gateway with this many groups; records the queries."""

    def __init__(self, groups: int) -> None:
        super().__init__(httpx.AsyncClient(), "bk-1")
        self._groups = groups
        self.asked: list[dict[str, object]] = []

    async def get(self, path: str, **query: object) -> Any:
        assert path == "/admin/v1/reports/costs"
        self.asked.append(query)
        return {"groups": self._groups, "rows": [], "others": None, "earlier": None}


@pytest.mark.parametrize(
    ("page", "offsets", "shown"),
    [("1", [0], 1), ("2", [500], 2), ("9", [4000, 500], 2), (None, [0], 1)],
)
async def test_no_more_groups_are_asked_for_than_are_shown(page: str | None, offsets: list[int], shown: int) -> None:
    """All 5,000 rows used to be sent and 500 shown. A page beyond the last is the last."""
    gateway = Reports(groups=612)
    view = make_view("reports.read", gateway=gateway, query=f"page={page}" if page else "")
    _, part = await read_report(view, {"by": "key", "team": "ads"}, Order("requests", is_turned=True))
    assert (part.number, part.rows) == (shown, 612)
    assert [(one["limit"], one["offset"], one["order"], one["team"]) for one in gateway.asked] == [
        (500, offset, "-requests", "ads") for offset in offsets
    ]
    assert {one["compare_since"] for one in gateway.asked} == {view.period.before().since.isoformat()}


async def test_a_further_page_of_somebody_with_fewer_groups_is_the_first_with_its_chart() -> None:
    """A lead who was sent an owner's second page read that no request had cost anything."""
    gateway = Reports(groups=3)
    _, part = await read_report(make_view("team.read", gateway=gateway, query="page=2"), {"by": "key"}, None)
    assert part.number == 1
    assert [(one["offset"], one["dearest"]) for one in gateway.asked] == [(500, 12), (0, 12)]


async def test_of_groups_of_a_time_all_are_asked_for_as_they_are_drawn() -> None:
    gateway = Reports(groups=612)
    view = make_view("reports.read", gateway=gateway, query="page=2")
    _, part = await read_report(view, {"by": "day,key"}, None)
    assert part.number == 2
    assert ["limit" in one for one in gateway.asked] == [False]


def test_the_groups_that_have_no_row_are_one_above_the_total() -> None:
    def figures(usd: str, requests: int) -> dict[str, Any]:
        prices = dict.fromkeys(("input_usd_per_mtok", "output_usd_per_mtok", "cost_per_request_usd"))
        tokens = dict.fromkeys(("input_tokens", "cached_input_tokens", "output_tokens"), 0)
        return {"cost_usd": usd, "requests": requests, "unpriced_requests": 0, **prices, **tokens}

    found = {
        "by": ["key"],
        "groups": 41,
        "rows": [{**figures("5", 3), "group": {"key": "key_1"}}],
        "others": {**figures("2", 1), "group": {}},
        "total": {**figures("7", 4), "group": {}},
        "earlier": {
            "total": figures("4", 1),
            "is_by_group": True,
            "rows": [figures("2.5", 1)],
            "others": figures("1", 1),
        },
    }
    view = make_view("reports.read", query="by=key")
    made = cost_table(view, found, TablePart(1, 41), compared(found), {"key_1": "chat"})
    chat, others, total = made.split("<tr")[-3:]
    assert ("chat" in chat, "+100 %" in chat) == (True, True)
    assert "be-name" in chat, "it may break within"
    hours = {**found, "rows": [{**figures("5", 3), "group": {"hour": "2026-11-20T22:00Z"}}], "by": ["hour"]}
    made = cost_table(view, hours, TablePart(1, 1), compared(found), {})
    assert 'be-nowrap">20 Nov 22:00<' in made, "an hour was two lines, and a week a third longer"
    of_two_years = replace(view, period=parse_period({"since": "2026-01-01", "last": "2027-01-01"}, datetime.now(UTC)))
    assert 'be-nowrap">20 Nov 2026 22:00<' in cost_table(of_two_years, hours, TablePart(1, 1), compared(found), {})
    assert ("40 other groups" in others, "$2" in others, "+100 %" in others) == (True, True, True)
    assert ("Total" in total, "$7" in total, "+75 %" in total) == (True, True, True)
