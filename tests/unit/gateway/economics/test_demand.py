import pytest

from gateway.economics.demand import build_demand, count_hours
from gateway.economics.errors import EconomicsError
from gateway.instants import HOUR_US
from tests.unit.gateway.economics.builders import MARCH_2026_US, MINI, covering_period, make_hour, make_plan
from tests.unit.gateway.economics.worked_example import ENGINE


def test_days_are_utcs_and_the_first_may_be_short() -> None:
    start_us = MARCH_2026_US + 23 * HOUR_US
    rows = [make_hour(hour, 100, start_us=start_us) for hour in range(47)]
    demand = build_demand(count_hours(rows, covering_period(rows), MINI), plan=make_plan(), engine=ENGINE)
    assert demand.day_of_hour.tolist() == [0] + [1] * 24 + [2] * 22
    assert demand.requests == 4700


def test_several_models_in_one_hour_are_one_load() -> None:
    rows = [make_hour(0, 100), make_hour(0, 50), make_hour(2, 10)]
    demand = build_demand(count_hours(rows, covering_period(rows), MINI), plan=make_plan(), engine=ENGINE)
    assert demand.load.requests_per_second.tolist() == [150 / 3600, 0.0, 10 / 3600]
    assert demand.hosted_pico_usd == 160 * 255_000_000


def test_a_variable_cost_lowers_what_a_served_request_is_worth() -> None:
    rows = [make_hour(0, 100)]
    plan = make_plan(variable_pico_usd=80_000_000)
    demand = build_demand(count_hours(rows, covering_period(rows), MINI), plan=plan, engine=ENGINE)
    assert demand.load.value_usd_per_request[0] == pytest.approx(0.000255 - 0.00008 * 0.28125)


def test_an_hour_row_without_requests_is_no_traffic() -> None:
    rows = [make_hour(0, 0)]
    with pytest.raises(EconomicsError, match="nothing to compare"):
        build_demand(count_hours(rows, covering_period(rows), MINI), plan=make_plan(), engine=ENGINE)
