from collections import Counter
from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest

from gateway.economics.demand import build_demand
from gateway.economics.errors import NoTraffic
from gateway.economics.traffic import Period, covering_period
from gateway.instants import HOUR_US
from tests.unit.gateway.economics.builders import MARCH_2026_US, MINI, make_days, make_hour, make_plan
from tests.unit.gateway.economics.worked_example import ENGINE

WEEKEND_OF_THE_CLOCK_CHANGE = int(datetime(2026, 3, 28, 23, tzinfo=UTC).timestamp()) * 1_000_000


def test_a_local_day_has_23_hours_when_clocks_go_forward() -> None:
    """2026-03-29 in Berlin: hours are counted in UTC, so none is lost; only the day that they belong to moves."""
    period = Period(WEEKEND_OF_THE_CLOCK_CHANGE, WEEKEND_OF_THE_CLOCK_CHANGE + 47 * HOUR_US)
    rows = [make_hour(hour, 100, start_us=period.start_us) for hour in range(47)]
    demand = build_demand(rows, period, plan=make_plan(), hosted=MINI, engine=ENGINE, zone=ZoneInfo("Europe/Berlin"))
    assert sorted(Counter(demand.day_of_hour.tolist()).values()) == [23, 24]
    assert demand.requests == 4700


@pytest.mark.parametrize(("offset", "sizes"), [(0, [24, 24]), (5, [5, 19, 24]), (-3, [3, 21, 24])])
def test_days_begin_where_the_zone_says(offset: int, sizes: list[int]) -> None:
    rows = make_days(2)
    zone = timezone(timedelta(hours=offset))
    demand = build_demand(rows, covering_period(rows), plan=make_plan(), hosted=MINI, engine=ENGINE, zone=zone)
    assert sorted(Counter(demand.day_of_hour.tolist()).values()) == sizes


def test_several_models_in_one_hour_are_one_load() -> None:
    rows = [make_hour(0, 100), make_hour(0, 50), make_hour(2, 10)]
    demand = build_demand(rows, covering_period(rows), plan=make_plan(), hosted=MINI, engine=ENGINE)
    assert demand.load.requests_per_second.tolist() == [150 / 3600, 0.0, 10 / 3600]
    assert demand.hosted_pico_usd == 160 * 255_000_000


def test_a_variable_cost_lowers_what_a_served_request_is_worth() -> None:
    rows = [make_hour(0, 100)]
    plan = make_plan(variable_pico_usd=80_000_000)
    demand = build_demand(rows, covering_period(rows), plan=plan, hosted=MINI, engine=ENGINE)
    assert demand.load.value_usd_per_request[0] == pytest.approx(0.000255 - 0.00008 * 0.28125)


def test_the_covering_period_starts_with_the_first_hour_seen() -> None:
    rows = [make_hour(5, 1), make_hour(3, 1)]
    assert covering_period(rows) == Period(MARCH_2026_US + 3 * HOUR_US, MARCH_2026_US + 6 * HOUR_US)


def test_an_hour_row_without_requests_is_no_traffic() -> None:
    rows = [make_hour(0, 0)]
    with pytest.raises(NoTraffic):
        build_demand(rows, covering_period(rows), plan=make_plan(), hosted=MINI, engine=ENGINE)
