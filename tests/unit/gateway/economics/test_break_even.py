"""The report from ledger rows: the worked example computed another way, and every edge case of docs/economics.md."""

from dataclasses import replace
from decimal import Decimal

import msgspec
import pytest

from gateway.economics.errors import EconomicsError
from gateway.economics.gpu_cost import Engine
from gateway.economics.report import BreakEvenReport
from gateway.economics.traffic import GpuPlan, HostedAlternative, Period
from gateway.economics.verdict import write_verdict
from gateway.instants import HOUR_US
from tests.unit.gateway.economics.builders import (
    LARGE,
    MARCH_2026_US,
    MINI,
    USD,
    analyse,
    make_days,
    make_hour,
    make_noisy_days,
    make_plan,
)
from tests.unit.gateway.economics.worked_example import ENGINE


def cents(amount: Decimal | None) -> str:
    assert amount is not None
    return f"{amount:.2f}"


def test_the_worked_example_from_rows() -> None:
    report = analyse(make_days(30))
    assert report.observed.requests_per_day == 576_000
    assert cents(report.month.all_hosted_usd) == "4406.40"
    assert [cents(row.fluid_total_usd) for row in report.staircase] == ["3839.04", "3957.12", "4613.76"]
    assert [row.pays for row in report.staircase] == [True, False, False]
    assert cents(report.month.plan_saving_usd) == "546.13"
    assert report.month.best_replicas == 1
    assert cents(report.month.hourly_scaling_usd) == "3134.40"
    assert (report.month.self_hosted_replicas, cents(report.month.self_hosted_usd)) == (4, "5760.00")
    assert report.unit.break_even_utilisation == pytest.approx(0.6127, abs=5e-5)
    assert report.volume.self_hosted == ()
    assert "$546.13 less" in report.verdict
    assert "doing without it never pays, because the fleet must be sized for the peak" in report.verdict


def test_break_even_volume_is_where_the_saving_changes_sign() -> None:
    report = analyse(make_days(30))
    assert report.volume.hybrid is not None
    scale = report.volume.hybrid.requests_per_day / 576_000
    for factor, is_saving in ((0.99, False), (1.01, True)):
        rows = make_days(30, lambda _, hour, by=scale * factor: (12.0, 6.0, 2.0)[hour // 8] * by)
        assert (analyse(rows).month.plan_saving_usd > 0) == is_saving


@pytest.mark.parametrize("engine", [ENGINE, None])
@pytest.mark.parametrize("factor", [0.001, 0.1, 0.37, 0.5, 1.5, 40.0])
def test_another_volume_is_no_rounding_of_every_hour(engine: Engine | None, factor: float) -> None:
    """A tenth of a few requests an hour: rounded to whole requests, hardly any would be left."""
    few = [make_hour(hour, 1 + hour % 4, aborted=hour % 2, gpu_seconds=0.3) for hour in range(24 * 7)]
    seen, other = analyse(few, engine=engine), analyse(few, engine=engine, volume=factor)
    assert float(other.month.all_hosted_usd) == pytest.approx(float(seen.month.all_hosted_usd) * factor)
    assert other.observed.requests_per_day == pytest.approx(seen.observed.requests_per_day * factor)
    assert other.unit.gpu_seconds_per_request == pytest.approx(seen.unit.gpu_seconds_per_request)
    assert other.unit.value_usd_per_hour == pytest.approx(seen.unit.value_usd_per_hour)
    assert other.volume.hybrid == seen.volume.hybrid or (
        other.volume.hybrid is not None
        and seen.volume.hybrid is not None
        and other.volume.hybrid.requests_per_day == pytest.approx(seen.volume.hybrid.requests_per_day)
    )


def test_a_dear_model_is_worth_a_fleet_without_hosting() -> None:
    report = analyse(make_days(30), make_plan(fixed_usd=7500), LARGE)
    assert round(report.volume.self_hosted[0].start.requests_per_day, 1) == 70_117.6
    assert report.volume.self_hosted[-1].end is None
    gaps = "with nothing hosted, but not at each volume above: every further GPU must fill first"
    assert gaps not in report.verdict
    twice = replace(report.volume, self_hosted=report.volume.self_hosted * 2)
    assert gaps in write_verdict(replace(report, volume=twice))


def test_the_report_is_json_with_money_as_text() -> None:
    report = analyse(make_noisy_days(8), make_plan(fixed_usd=100))
    text = msgspec.json.encode(report)
    assert msgspec.json.decode(text, type=BreakEvenReport) == report
    assert isinstance(msgspec.json.decode(text)["month"]["all_hosted_usd"], str)


def test_without_a_curve_the_ledgers_own_gpu_seconds_count() -> None:
    rows = [make_hour(hour, 3600, gpu_seconds=1800.0) for hour in range(48)]
    report = analyse(rows, make_plan(is_running=True), engine=None)
    assert report.discipline == "fluid"
    assert report.unit.gpu_seconds_per_request == 0.5
    assert report.owned.is_measured
    assert report.owned.utilisation == 0.5
    assert report.owned.rent_usd == 96
    assert report.owned.idle_usd == 48
    assert report.owned.allocated_usd_per_request == Decimal("0.000555555556")
    assert report.owned.busy_usd_per_request == Decimal("0.000277777778")
    assert any("fluid bound" in note for note in report.caveats)


def test_small_batches_keep_a_gpu_busy_without_using_it() -> None:
    """On the curve a request takes 0.28 s; here each took 0.56 s, because the batches were small."""
    rows = [make_hour(hour, 3600, gpu_seconds=3600 * 0.5625) for hour in range(48)]
    report = analyse(rows, make_plan(is_running=True))
    assert report.owned.busy_share == pytest.approx(0.5625)
    assert report.owned.utilisation == pytest.approx(0.28125)
    assert report.owned.idle_usd == pytest.approx(report.owned.rent_usd * Decimal("0.4375"))
    assert "used 28.1% (it computed 56.2% of the time" in report.verdict
    assert report.owned.allocated_usd_per_request == Decimal("0.000555555556")


def test_more_used_than_paid_for_leaves_nothing_idle() -> None:
    rows = [make_hour(hour, 3600, gpu_seconds=3601.0) for hour in range(2)]
    owned = analyse(rows, make_plan(is_running=True), engine=None).owned
    assert (owned.idle_usd, owned.busy_share) == (0, 1.0)


def test_another_fleet_than_the_one_that_runs_is_expected_not_measured() -> None:
    """The ledger's GPU-seconds are of the one running replica; two replicas would each be half as busy."""
    rows = [make_hour(hour, 3600, gpu_seconds=1800.0) for hour in range(48)]
    owned = analyse(rows, make_plan(replicas=2), engine=None).owned
    assert not owned.is_measured
    assert owned.utilisation == owned.busy_share == 0.25


def test_allocated_is_dearer_than_marginal() -> None:
    rows = [make_hour(hour, 3600, gpu_seconds=1800.0) for hour in range(48)]
    owned = analyse(rows, make_plan(variable_pico_usd=30_000_000), engine=None).owned
    assert owned.marginal_usd_per_request == Decimal("0.000015")
    assert owned.allocated_usd_per_request is not None
    assert owned.allocated_usd_per_request * 48 * 3600 == pytest.approx(owned.rent_usd, rel=Decimal("1e-6"))


def test_electricity_is_paid_only_for_what_is_served() -> None:
    free, metered = analyse(make_days(7)), analyse(make_days(7), make_plan(variable_pico_usd=30_000_000))
    assert metered.month.all_hosted_usd == free.month.all_hosted_usd
    served = free.month.plan_saving_usd + 1440
    power = Decimal("0.00003") / Decimal("0.000255") * Decimal("0.28125") * served
    assert free.month.plan_saving_usd - metered.month.plan_saving_usd == pytest.approx(power)
    all_power = Decimal("0.00003") * Decimal("0.28125") * 576_000 * 30
    assert metered.month.self_hosted_usd - free.month.self_hosted_usd == pytest.approx(all_power)


def test_nobody_measured_what_a_request_takes() -> None:
    with pytest.raises(
        EconomicsError, match=r"no measured throughput curve: `breakeven bench engine` .* `breakeven what-if`"
    ):
        analyse(make_days(2), engine=None)


def test_no_traffic_is_idle_rent() -> None:
    with pytest.raises(EconomicsError, match=r"idle: no request in 24 hours.*\$48\.00"):
        analyse([], period=Period(MARCH_2026_US, MARCH_2026_US + 24 * HOUR_US))
    with pytest.raises(EconomicsError, match="no request in 1 hour,"):
        analyse([], period=Period(MARCH_2026_US, MARCH_2026_US + HOUR_US))


def test_a_running_gpu_that_serves_nothing_is_idle_and_no_request_costs_infinity() -> None:
    owned = analyse(make_days(2), make_plan(is_running=True)).owned
    assert owned.utilisation == 0.0
    assert owned.idle_usd == owned.rent_usd
    assert owned.allocated_usd_per_request is None


def test_hours_without_rows_are_idle_hours() -> None:
    rows = [make_hour(0, 3600)]
    period = Period(MARCH_2026_US, MARCH_2026_US + 24 * HOUR_US)
    assert analyse(rows, period=period).observed.requests_per_day == pytest.approx(3600)
    assert analyse(rows).observed.requests_per_day == pytest.approx(24 * 3600)


def test_rows_outside_the_period_are_left_out() -> None:
    period = Period(MARCH_2026_US + 24 * HOUR_US, MARCH_2026_US + 48 * HOUR_US)
    assert analyse(make_days(3), period=period).observed.requests == 576_000


def test_never() -> None:
    report = analyse(make_days(7), make_plan(50.0))
    least = report.unit.break_even_utilisation
    assert least is not None
    assert least > 1
    assert report.volume.hybrid is None
    assert report.month.best_replicas == 0
    assert report.month.best_usd == report.month.all_hosted_usd
    assert "owning never pays here" in report.verdict
    assert "no volume makes a GPU pay" in report.verdict


def test_a_free_alternative() -> None:
    report = analyse(make_days(2), hosted=HostedAlternative("free", 0, 0, 0))
    assert report.unit.break_even_utilisation is None
    assert "can never pay" in report.verdict


def test_minimum_replicas_are_paid_even_when_they_lose() -> None:
    report = analyse(make_days(7), make_plan(replicas=3, minimum=3))
    assert report.month.best_replicas == 3
    assert report.month.best_usd == report.month.plan_usd
    assert report.month.hourly_scaling_usd > Decimal("3134.40")


def test_a_short_sample_says_so() -> None:
    report = analyse(make_days(1))
    assert report.confidence is None
    assert "assumes that the rest of it looks the same" in report.verdict
    assert any("Less than a week" in note for note in report.caveats)
    assert "these odds are weak" in analyse(make_noisy_days(3)).verdict


def test_a_full_month_does_not_apologise() -> None:
    assert "assumes" not in analyse(make_days(30)).verdict


def test_the_month_convention_is_stated_and_used() -> None:
    plan = replace(make_plan(), hours_per_month=730.0)
    report = analyse(make_days(30), plan)
    assert report.month.all_hosted_usd == pytest.approx(Decimal("4406.40") * 730 / 720)
    assert any("730 hours" in note for note in report.caveats)


def test_quality_is_in_every_verdict() -> None:
    assert "0.700 owned against 0.710 hosted" in analyse(make_days(2)).verdict
    unknown = analyse(make_days(2), hosted=replace(MINI, quality=None))
    assert "not measured hosted" in unknown.verdict
    neither = analyse(make_days(2), replace(make_plan(), quality=None), hosted=replace(MINI, quality=None))
    assert neither.verdict.endswith("Quality: not measured on either side.")
    assert any("compares prices, not answers" in note for note in unknown.caveats)


def test_aborted_requests_burn_gpu_and_earn_nothing() -> None:
    whole = analyse([make_hour(hour, 3600) for hour in range(48)])
    half = analyse([make_hour(hour, 3600, aborted=1800) for hour in range(48)])
    assert half.unit.gpu_seconds_per_request == whole.unit.gpu_seconds_per_request
    assert half.month.all_hosted_usd == whole.month.all_hosted_usd
    rent = whole.owned.rent_usd * 720 / 48
    assert (half.month.plan_saving_usd + rent) * 2 == pytest.approx(whole.month.plan_saving_usd + rent)
    assert any("aborted" in note for note in half.caveats)


def test_estimated_usage_widens_the_interval() -> None:
    rows = make_noisy_days(30)
    exact = analyse(rows).confidence
    guessed = analyse([replace(row, estimated_requests=row.requests) for row in rows]).confidence
    assert exact is not None
    assert guessed is not None
    assert guessed.saving_high_usd - guessed.saving_low_usd > 2 * (exact.saving_high_usd - exact.saving_low_usd)


def test_unpriced_requests_are_named() -> None:
    rows = [replace(row, unpriced_requests=1) for row in make_days(2)]
    assert any("48 requests have no known price" in note for note in analyse(rows).caveats)


def test_the_odds_of_a_close_call_are_neither_nought_nor_one() -> None:
    rows = make_noisy_days(14)
    saving = analyse(rows).month.plan_saving_usd
    close = analyse(rows, make_plan(fixed_usd=int(saving))).confidence
    assert close is not None
    assert 0.2 < close.probability_owning_is_cheaper < 0.8
    assert close.saving_low_usd < close.saving_middle_usd < close.saving_high_usd


def test_the_tornado_is_sorted_and_points_the_right_way() -> None:
    swings = {swing.input: swing for swing in analyse(make_days(7), make_plan(fixed_usd=50)).tornado}
    assert len(swings) == 6
    widths = [
        abs(swing.saving_at_plus_25_percent_usd - swing.saving_at_minus_25_percent_usd) for swing in swings.values()
    ]
    assert widths == sorted(widths, reverse=True)
    for name in ("price of a GPU-hour", "fixed cost per month", "GPU-seconds per request"):
        assert swings[name].saving_at_minus_25_percent_usd > swings[name].saving_at_plus_25_percent_usd
    for name in ("hosted price", "requests per day"):
        assert swings[name].saving_at_minus_25_percent_usd < swings[name].saving_at_plus_25_percent_usd


@pytest.mark.parametrize(("factor", "end"), [(3, "minus"), (5, "plus")])
def test_the_tornado_says_what_the_report_says_at_that_price(factor: int, end: str) -> None:
    plan = make_plan(variable_pico_usd=30_000_000)
    prices = (MINI.input_pico_usd_per_token, MINI.cached_input_pico_usd_per_token, MINI.output_pico_usd_per_token)
    other = HostedAlternative("other", *(price * factor // 4 for price in prices))
    dearer_gpu = replace(plan, gpu_hour_price_pico_usd=plan.gpu_hour_price_pico_usd * factor // 4)
    swings = {swing.input: swing for swing in analyse(make_days(7), plan).tornado}
    for name, report in (
        ("hosted price", analyse(make_days(7), plan, hosted=other)),
        ("price of a GPU-hour", analyse(make_days(7), dearer_gpu)),
    ):
        said = getattr(swings[name], f"saving_at_{end}_25_percent_usd")
        assert float(said) == pytest.approx(float(report.month.plan_saving_usd), abs=1e-6), name


def test_the_output_length_needs_a_curve_and_no_fixed_cost_has_no_bar() -> None:
    rows = [make_hour(hour, 3600, gpu_seconds=1800.0) for hour in range(48)]
    names = {swing.input for swing in analyse(rows, engine=None).tornado}
    assert names == {"price of a GPU-hour", "hosted price", "GPU-seconds per request", "requests per day"}


def test_high_fixed_costs_need_more_than_one_replica() -> None:
    report = analyse(make_days(30, lambda _, __: 20.0), make_plan(fixed_usd=1500))
    assert report.volume.hybrid is not None
    assert report.volume.hybrid_replicas is not None
    assert report.volume.hybrid_replicas > 1


@pytest.mark.parametrize(("start", "end"), [(1, HOUR_US), (0, 0), (HOUR_US, 0), (0, HOUR_US + 1)])
def test_a_period_is_whole_hours(start: int, end: int) -> None:
    with pytest.raises(EconomicsError):
        Period(start, end)


@pytest.mark.parametrize(("replicas", "gpus", "hours"), [(0, 1, 720.0), (1, 0, 720.0), (1, 1, 0.0)])
def test_a_plan_without_gpus_is_no_plan(replicas: int, gpus: int, hours: float) -> None:
    with pytest.raises(EconomicsError):
        GpuPlan("none", 2 * USD, gpus_per_replica=gpus, replicas=replicas, hours_per_month=hours)


def test_the_same_generator_gives_the_same_report() -> None:
    assert analyse(make_noisy_days(9)) == analyse(make_noisy_days(9))


def test_some_requests_ran_locally_and_the_rest_is_taken_to_be_alike() -> None:
    rows = [make_hour(hour, 3600, gpu_seconds=1800.0 if hour % 2 else 0.0) for hour in range(48)]
    report = analyse(rows, engine=None)
    assert report.unit.gpu_seconds_per_request == 0.5
    assert any("taken to need the same GPU-seconds" in note for note in report.caveats)


def test_what_water_just_pays_chance_arrivals_may_never_pay() -> None:
    """One slot loses so many requests to random arrivals that no volume fills it, which the fluid bound ignores."""
    engine = replace(ENGINE, concurrency=1)
    rows = make_days(7, lambda _, __: 6.0)
    value = analyse(rows, engine=engine).unit.value_usd_per_hour
    report = analyse(rows, make_plan(float(value) * 0.9999), engine=engine)
    assert report.unit.break_even_utilisation == pytest.approx(0.9999, abs=1e-4)
    assert report.volume.hybrid is None
