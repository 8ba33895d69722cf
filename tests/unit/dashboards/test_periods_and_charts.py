"""Time ranges from addresses, and what the charts are told to draw."""

from datetime import UTC, datetime, timedelta

import pytest

from dashboards import charts
from dashboards.periods import link, parse_period

NOW = datetime(2026, 3, 5, 14, 20, tzinfo=UTC)


@pytest.mark.parametrize(
    ("name", "since", "until"),
    [
        ("24h", datetime(2026, 3, 4, 15, tzinfo=UTC), datetime(2026, 3, 5, 15, tzinfo=UTC)),
        ("month", datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 3, 5, 15, tzinfo=UTC)),
        ("last-month", datetime(2026, 2, 1, tzinfo=UTC), datetime(2026, 3, 1, tzinfo=UTC)),
        ("nonsense", datetime(2026, 2, 3, 15, tzinfo=UTC), datetime(2026, 3, 5, 15, tzinfo=UTC)),
    ],
)
def test_presets_are_whole_hours(name: str, since: datetime, until: datetime) -> None:
    period = parse_period({"period": name}, NOW)
    assert (period.since, period.until) == (since, until)


def test_a_range_of_its_own_survives_a_link() -> None:
    period = parse_period({"since": "2026-01-01", "until": "2026-01-08T00:00:00+00:00"}, NOW)
    assert period.until - period.since == timedelta(days=7)
    assert "since=2026-01-01" in link("/explorer", period, team="a&b", model=None)
    assert "team=a%26b" in link("/explorer", period, team="a&b")
    assert period.before().until == period.since


@pytest.mark.parametrize("query", [{"since": "x", "until": "y"}, {"since": "2026-02-01", "until": "2026-01-01"}, {}])
def test_what_cannot_be_read_is_the_default(query: dict[str, str]) -> None:
    assert parse_period(query, NOW).name == "30d"


def test_stacked_bars_lose_nothing() -> None:
    points = [("a", "x", 1.0), ("b", "y", 2.0), ("b", "x", 3.0), ("b", "x", 0.5)]
    series = charts.stacked_bars(points, unit="$")["series"]
    assert [one["name"] for one in series] == ["x", "y"]
    assert [[value for _, value in one["data"]] for one in series] == [[1.0, 3.5], [0.0, 2.0]]


def test_the_tornado_puts_the_strongest_on_top() -> None:
    options = charts.tornado([("weak", 9, 11), ("strong", 0, 20)], 10)
    assert options["yAxis"]["data"] == ["weak", "strong"]
    assert [one["data"] for one in options["series"]] == [[-1, -10], [1, 10]]


def test_the_cost_curve_has_its_band_and_its_mark() -> None:
    point = {"requests_per_day": 1.0, "hosted_usd": 2.0, "owned_usd": 3.0, "owned_low_usd": 2.5, "owned_high_usd": 3.5}
    options = charts.cost_curves([point], 1.0)
    assert [one["data"] for one in options["series"]] == [[[1.0, 2.0]], [[1.0, 3.0]], [[1.0, 2.5]], [[1.0, 1.0]]]
    assert options["series"][0]["markLine"]["data"] == [{"xAxis": 1.0}]
    without = charts.cost_curves([{**point, "owned_low_usd": None, "owned_high_usd": None}], 1.0)
    assert len(without["series"]) == 2


def test_break_even_above_everything_draws_no_line() -> None:
    assert "markLine" not in charts.used_and_paid([("a", 1, 2)], 1.5)["series"][0]
    assert charts.used_and_paid([("a", 1, 2)], 0.5)["series"][0]["markLine"]["data"] == [{"yAxis": 50.0}]
