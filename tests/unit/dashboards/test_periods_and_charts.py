"""Time ranges from addresses, and options of the charts."""

from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from dashboards import charts
from dashboards.pages.explorer import requests_of
from dashboards.periods import EARLIEST, LATEST, Period, link, parse_period, time_of

NOW = datetime(2026, 3, 5, 14, 20, tzinfo=UTC)
DEFAULT_BOUNDS = (datetime(2026, 2, 3, 15, tzinfo=UTC), datetime(2026, 3, 5, 15, tzinfo=UTC))


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


@pytest.mark.parametrize(
    ("name", "since", "until"),
    [
        ("month", datetime(2026, 2, 1, tzinfo=UTC), datetime(2026, 2, 5, 15, tzinfo=UTC)),
        ("last-month", datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 2, 1, tzinfo=UTC)),
        ("24h", datetime(2026, 3, 3, 15, tzinfo=UTC), datetime(2026, 3, 4, 15, tzinfo=UTC)),
    ],
)
def test_a_month_is_compared_with_the_month_before(name: str, since: datetime, until: datetime) -> None:
    assert parse_period({"period": name}, NOW).before() == Period("", since, until)


def test_a_long_month_is_not_compared_with_days_of_its_own() -> None:
    end_of_march = datetime(2026, 3, 31, 23, tzinfo=UTC)
    assert parse_period({"period": "month"}, end_of_march).before().until == datetime(2026, 3, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("query", "before", "phrase"),
    [
        (
            {"since": "2026-03-02", "last": "2026-03-08"},
            Period("", datetime(2026, 2, 23, tzinfo=UTC), datetime(2026, 2, 26, 15, tzinfo=UTC)),
            "the same part of as long a time before",
        ),
        (
            {"since": "2026-03-02", "until": "2026-03-05T15:00"},
            Period("", datetime(2026, 2, 26, 9, tzinfo=UTC), datetime(2026, 3, 2, tzinfo=UTC)),
            "as long a time before",
        ),
        (
            {"since": "2026-03-06", "last": "2026-03-06"},
            Period("", datetime(2026, 3, 5, tzinfo=UTC), datetime(2026, 3, 6, tzinfo=UTC)),
            "as long a time before",
        ),
    ],
)
def test_a_time_that_is_not_over_is_compared_with_as_much_of_the_one_before(
    query: dict[str, str], before: Period, phrase: str
) -> None:
    """On a Thursday, three and a half days of this week used to be compared with seven of the last."""
    period = parse_period(query, NOW)
    assert (period.before(), period.before_phrase) == (before, phrase)


def test_the_last_day_that_a_person_chooses_is_included() -> None:
    period = parse_period({"since": "2026-01-01", "last": "2026-01-31"}, NOW)
    assert (period.name, period.until) == ("", datetime(2026, 2, 1, tzinfo=UTC))
    assert period.phrase == "1 Jan 2026 – 31 Jan 2026"


def test_two_days_are_a_time_whichever_was_typed_first() -> None:
    """The page used to show the last 30 days instead, without saying so."""
    period = parse_period({"since": "2026-01-31", "last": "2026-01-01"}, NOW)
    assert (period.since, period.until) == (datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 2, 1, tzinfo=UTC))


@pytest.mark.parametrize(
    ("query", "since", "until"),
    [
        ({"since": "2026-01-01", "last": "9999-12-31"}, datetime(2026, 1, 1, tzinfo=UTC), LATEST),
        ({"since": "0202-01-01", "last": "2026-01-01"}, EARLIEST, datetime(2026, 1, 2, tzinfo=UTC)),
        ({"since": "0001-01-01", "until": "9999-12-31"}, EARLIEST, LATEST),
        ({"since": "0001-01-01T00:00:00+05:00", "until": "2026-01-01"}, *DEFAULT_BOUNDS),
        ({"since": "2100-02-01", "last": "9999-12-31"}, *DEFAULT_BOUNDS),
    ],
)
def test_a_mistyped_year_is_no_error_of_the_page(query: dict[str, str], since: datetime, until: datetime) -> None:
    """Such an address used to be an internal error with a traceback in the log."""
    period = parse_period(query, NOW)
    assert (period.since, period.until) == (since, until)
    assert period.before().until <= period.since


@pytest.mark.parametrize(
    ("dimension", "start", "until"),
    [
        ("hour", "2026-02-28T23:00Z", datetime(2026, 3, 1, tzinfo=UTC)),
        ("day", "2026-02-28", datetime(2026, 3, 1, tzinfo=UTC)),
        ("week", "2026-W09", datetime(2026, 3, 2, tzinfo=UTC)),
        ("week", "2026-W53", datetime(2027, 1, 4, tzinfo=UTC)),
        ("month", "2026-02", datetime(2026, 3, 1, tzinfo=UTC)),
        ("quarter", "2026-Q1", datetime(2026, 4, 1, tzinfo=UTC)),
        ("quarter", "2026-Q4", datetime(2027, 1, 1, tzinfo=UTC)),
    ],
)
def test_a_time_of_a_report_leads_to_its_own_requests(dimension: str, start: str, until: datetime) -> None:
    assert time_of(dimension, start).until == until
    years = parse_period({"since": "2025-01-01", "until": "2028-01-01"}, NOW)
    address = requests_of(years, {dimension: start, "key": "key_1"}, {})
    assert address is not None
    assert f"until={until:%Y-%m-%d}T00" in address
    assert "key_id=key_1" in address


@pytest.mark.parametrize(
    ("start", "since", "until"),
    [
        ("2026-02-03", "2026-02-03T15:00", "2026-02-04T00:00"),
        ("2026-02-04", "2026-02-04T00:00", "2026-02-05T00:00"),
        ("2026-03-05", "2026-03-05T00:00", "2026-03-05T15:00"),
    ],
)
def test_a_day_that_the_period_cuts_leads_to_the_requests_that_its_row_counts(
    start: str, since: str, until: str
) -> None:
    address = requests_of(parse_period({}, NOW), {"day": start}, {})
    assert address is not None
    assert dict(parse_qsl(urlsplit(address).query)) == {"since": f"{since}:00+00:00", "until": f"{until}:00+00:00"}


@pytest.mark.parametrize("group", [{"provider": "openai"}, {"team": None}])
def test_what_the_list_of_requests_cannot_filter_has_no_link(group: dict[str, str | None]) -> None:
    assert requests_of(parse_period({}, NOW), group, {}) is None


@pytest.mark.parametrize(
    ("path", "shown"), [("/", "./?period=7d"), ("/keys", "keys?period=7d"), ("/export/a.csv", "export/a.csv?period=7d")]
)
def test_a_link_says_nothing_of_the_path_that_a_proxy_has_put_before_the_pages(path: str, shown: str) -> None:
    assert link(path, parse_period({"period": "7d"}, NOW)) == shown


def test_a_group_leads_to_its_requests_among_those_that_the_page_is_filtered_to() -> None:
    given = {"key": "key_1", "team": None, "tag": "a", "model": "big"}
    address = requests_of(parse_period({}, NOW), {"model": "small"}, given)
    assert address == "requests?key_id=key_1&tag=a&model=small"


def test_stacked_bars_lose_nothing() -> None:
    first, second = "2026-03-01", "2026-03-02"
    points = [(first, "x", 1.0), (second, "y", 2.0), (second, "x", 3.0), (second, "x", 0.5)]
    series = charts.stacked_bars(points)["series"]
    assert [one["name"] for one in series] == ["x", "y"]
    assert [[value for _, value in one["data"]] for one in series] == [[1.0, 3.5], [0.0, 2.0]]


def test_no_colour_of_stacked_bars_stands_for_two_names_and_the_sum_stays() -> None:
    points = [(start, f"m{n}", float(n + 1)) for start in ("2026-03-01", "2026-03-02") for n in range(25)]
    series = charts.stacked_bars(points)["series"]
    assert len(series) == len(charts.COLOURS)
    assert [series[0]["name"], series[-1]["name"]] == ["m24", "18 others"]
    assert sum(value for one in series for _, value in one["data"]) == 2 * sum(range(1, 26))
    few = charts.stacked_bars([("2026-03-01", f"m{n}", 1.0) for n in range(len(charts.COLOURS))])["series"]
    assert not any("others" in one["name"] for one in few)


def test_the_tornado_puts_the_strongest_on_top() -> None:
    options = charts.tornado([("weak", 9, 11), ("strong", 0, 20)], 10)
    assert options["yAxis"]["data"] == ["weak", "strong"]
    assert [one["data"] for one in options["series"]] == [[-1, -10], [1, 10]]


def test_the_cost_curve_has_its_band_and_its_mark() -> None:
    point = {"requests_per_day": 1.0, "hosted_usd": 2.0, "owned_usd": 3.0, "owned_low_usd": 2.5, "owned_high_usd": 3.5}
    options = charts.cost_curves([point], 1.0, {"requests_per_day": 1.0, "hosted_usd_per_month": "2.5"})
    assert [one["data"] for one in options["series"]] == [[[1.0, 2.0]], [[1.0, 3.0]], [[1.0, 2.5]], [[1.0, 1.0]]]
    assert options["series"][0]["markLine"]["data"] == [{"xAxis": 1.0}]
    assert options["series"][0]["markPoint"]["data"] == [{"coord": [1.0, 2.5]}]
    said = [one["option"]["series"][0]["markPoint"]["label"]["formatter"] for one in options["media"]]
    assert said == ["from 1 a day", "owning pays from 1 a day"], "the shorter on a phone"
    assert options["series"][-1]["name"] in options["legend"]["data"]
    without = charts.cost_curves([{**point, "owned_low_usd": None, "owned_high_usd": None}], 1.0, None)
    assert len(without["series"]) == len(without["legend"]["data"]) == 2
    assert without["series"][0]["markPoint"] == {"data": []}, "one that was drawn before goes"


def test_a_crossing_beyond_the_curve_is_not_drawn() -> None:
    point = {"requests_per_day": 1.0, "hosted_usd": 2.0, "owned_usd": 3.0, "owned_low_usd": None}
    options = charts.cost_curves([point], 1.0, {"requests_per_day": 9.0, "hosted_usd_per_month": "18"})
    assert options["series"][0]["markPoint"] == {"data": []}


def test_the_mark_of_today_does_not_lie_over_the_axis_where_it_is_far_on_the_left() -> None:
    points: list[dict[str, Any]] = [
        {"requests_per_day": at, "hosted_usd": at, "owned_usd": 1.0, "owned_low_usd": None} for at in (0.0, 100.0)
    ]

    def aligned(here: float) -> str:
        return charts.cost_curves(points, here, None)["series"][0]["markLine"]["label"]["align"]

    assert (aligned(5.0), aligned(50.0)) == ("left", "center")


def test_on_a_phone_a_few_names_stand_below_each_other_and_many_are_leafed_through() -> None:
    few = charts.stacked_bars([("2026-03-01", f"m{n}", 1.0) for n in range(3)])
    assert few["legend"]["type"] == "plain"
    narrow, wide = few["media"]
    assert wide == {"option": {"legend": {"orient": "horizontal", "left": "center"}, "grid": {"bottom": 30}}}
    assert narrow["query"] == {"maxWidth": charts.PHONE_PIXELS}
    assert narrow["option"]["legend"]["orient"] == "vertical"
    assert narrow["option"]["grid"]["bottom"] > few["grid"]["bottom"]
    many = charts.stacked_bars([("2026-03-01", f"m{n}", 1.0) for n in range(6)])
    assert many["legend"]["type"] == "scroll"
    assert "media" not in many
    one = charts.stacked_bars([("2026-03-01", "m", 1.0)])
    assert "media" not in one


def test_the_volume_that_pays_is_named_to_the_side_that_has_room() -> None:
    def aligned(requests: float) -> str:
        points = [
            {"requests_per_day": at, "hosted_usd": at, "owned_usd": 1.0, "owned_low_usd": None, "owned_high_usd": None}
            for at in (0.0, 100.0)
        ]
        made = charts.cost_curves(points, 1.0, {"requests_per_day": requests, "hosted_usd_per_month": "1"})
        return made["series"][0]["markPoint"]["label"]["align"]

    assert (aligned(20.0), aligned(80.0)) == ("left", "right")


def test_an_interval_and_its_line_are_told_apart_in_the_legend() -> None:
    series = charts.forecast([("2026-03-01", 1.0)], [("2026-03-02", 1.0, 2.0, 3.0)])["series"]
    colours = {one["name"]: one.get("color") for one in series}
    assert colours["expected"] != colours["5–95 %"]


@pytest.mark.parametrize(
    ("options", "axis"),
    [
        (charts.stacked_bars([("2026-03-01", "x", 2.0), ("2026-03-01", "y", 2.0)]), "yAxis"),
        (charts.rows(["a"], [4.0]), "xAxis"),
        (charts.tornado([("a", -1.0, 3.0)], 1.0), "xAxis"),
        (charts.forecast([("2026-03-01", 4.0)], []), "yAxis"),
    ],
)
def test_dollars_are_written_as_dollars(options: charts.Options, axis: str) -> None:
    assert options[axis]["axisLabel"][":formatter"] == charts.DOLLAR_TICK
    assert options["tooltip"][":valueFormatter"] == charts.DOLLARS


def test_names_too_long_for_a_line_stand_on_two() -> None:
    """Three bars of one team used to look alike: each model's name was cut off."""

    def formatter(name: str) -> str:
        return charts.rows([name], [1.0])["yAxis"]["axisLabel"][":formatter"]

    assert formatter("search · gpt-6") == charts.ON_ONE_LINE
    assert formatter("the-department-for-very-long-names · gpt-6") == charts.ON_TWO_LINES


@pytest.mark.parametrize(
    ("name", "width", "on_a_phone"),
    [
        ("app-0042", None, None),
        ("search · the-department-for-many-names", None, 135),
        ("x" * 60, 260, 135),
        ("漢" * 20, 260, 135),
    ],
)
def test_only_names_that_are_cut_have_a_width(name: str, width: int | None, on_a_phone: int | None) -> None:
    """Beside `app-0042` a third of a small chart used to be empty."""
    options = charts.rows([name], [1.0])
    narrow, wide = (media["option"]["yAxis"]["axisLabel"]["width"] for media in options["media"])
    assert (options["yAxis"]["axisLabel"]["width"], wide, narrow) == (width, width, on_a_phone)


@pytest.mark.parametrize(("usd", "pixels"), [(0.0, 26), (19.2, 26), (3_000_000.0, 40)])
def test_the_last_label_of_lying_bars_has_room(usd: float, pixels: int) -> None:
    """Of $35,000,000 the last zero was cut off."""
    assert charts.rows(["a"], [usd])["grid"]["right"] == pixels


def test_an_axis_of_a_few_dollars_has_cents_at_each_tick() -> None:
    """`$1` used to stand between `$0.50` and `$1.50`."""
    assert charts.rows(["a"], [3.0])["xAxis"]["axisLabel"][":formatter"] == charts.CENT_TICK
    assert charts.stacked_bars([])["yAxis"]["axisLabel"][":formatter"] == charts.CENT_TICK


def test_break_even_above_everything_draws_no_line() -> None:
    hour = ("2026-11-25T19:00:00+00:00", 1, 2)
    assert "markLine" not in charts.used_and_paid([hour], 1.5)["series"][0]
    assert charts.used_and_paid([hour], 0.5)["series"][0]["markLine"]["data"] == [{"yAxis": 50.0}]


def test_the_names_of_times_are_those_of_their_axis_alone() -> None:
    """The axis of per cent used to get them too, and so had no numbers."""
    options = charts.used_and_paid([("2026-11-25T19:00:00+00:00", 1, 2)], None)
    assert "customValues" in options["xAxis"]["axisLabel"]
    assert "customValues" not in options["yAxis"]["axisLabel"]


def test_the_last_hour_of_utilisation_is_as_wide_as_the_others() -> None:
    """It used to be a mere point: a first hour could not be seen at all."""
    hour = ("2026-11-25T23:00:00+00:00", 900, 3600)
    assert charts.used_and_paid([hour], None)["series"][0]["data"] == [
        [hour[0], 25.0],
        ["2026-11-26T00:00:00+00:00", 25.0],
    ]
    assert charts.used_and_paid([], None)["series"][0]["data"] == []


def test_days_of_a_forecast_begin_at_midnight_utc_wherever_they_are_looked_at() -> None:
    options = charts.forecast([("2026-03-01", 1.0)], [("2026-03-02", 1.0, 2.0, 3.0)])
    assert options["useUTC"]
    days = [one["data"][0][0] for one in options["series"]]
    assert days == ["2026-03-01T00:00Z", *["2026-03-02T00:00Z"] * 3]
