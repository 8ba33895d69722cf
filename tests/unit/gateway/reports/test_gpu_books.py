"""Rent, use and idle hours of GPUs of our own, whose price changes and which are given back, over a real ledger."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from gateway.config.rents import present_rents
from gateway.config.settings import LOCAL_BACKEND, BackendSettings, Settings, ThroughputSettings
from gateway.economics.traffic import HourlyTraffic
from gateway.errors import InvalidRequest
from gateway.instants import microseconds as us
from gateway.instants import moment_of
from gateway.money import format_usd, usd
from gateway.reports.break_even_service import BreakEvenOf, BreakEvenService
from gateway.reports.gpu_books import Bounds
from gateway.reports.plans import OwnGpus, own_engine_plan, own_gpus
from gateway.reports.views import BooksQuery, BreakEvenQuery, BreakEvenView, CostQuery, PeriodQuery
from gateway.storage.sql.reports import SqlReports
from tests.builders import make_local
from tests.unit.gateway.economics.worked_example import ENGINE
from tests.unit.gateway.reports.month import END, NOTHING, Month, Recorded, services


async def test_rent_is_used_plus_idle(month: Month) -> None:
    found = await month.books.utilisation(PeriodQuery(until=END))
    assert found.idle is not None
    assert Decimal(found.idle.used_usd) + Decimal(found.idle.idle_usd) == Decimal(found.idle.rent_usd)
    used = sum(entry.gpu_seconds for entry in month.entries)
    assert sum(hour.used_gpu_seconds for hour in found.hours) == pytest.approx(used)
    assert found.idle.utilisation == pytest.approx(used / sum(hour.paid_gpu_seconds for hour in found.hours))


RISE = datetime(2026, 11, 3, 6, tzinfo=UTC)
GIVEN_BACK = datetime(2026, 11, 10, 18, tzinfo=UTC)


async def test_a_new_rent_and_a_gpu_given_back_leave_earlier_hours_alone(month: Month) -> None:
    """The hours of each price are counted here by hand; the day of each change is cut where it happened."""
    [first] = [rent for rent in present_rents(month.deployment.settings) if rent.hour_pico_usd is not None]
    cent = 10**10
    rents = [
        replace(first, hour_pico_usd=2 * cent),
        replace(first, from_hour=hour_of(RISE), hour_pico_usd=5 * cent),
        replace(first, from_hour=hour_of(GIVEN_BACK), hour_pico_usd=None),
    ]
    books, start = month.books_with(rents), RISE - timedelta(days=3, hours=2)
    asked = PeriodQuery(since=start, until=END)
    found = await books.utilisation(asked)
    assert found.idle is not None
    paid = {1: 3 * 24 + 2, 2: 7 * 24 + 12}
    assert Decimal(found.idle.rent_usd) == paid[1] * Decimal("0.02") + paid[2] * Decimal("0.05")
    assert [point.paid_gpu_seconds for point in found.hours] == [3600.0] * sum(paid.values()) + [0.0] * 234
    assert (found.is_configured, found.replicas) == (True, 0)
    days = {day.day: day for day in await books.gpus.capacity(books.bounds(asked))}
    assert days["2026-11-02"].rent_pico_usd == 24 * 2 * cent
    assert days["2026-11-03"].rent_pico_usd == 6 * 2 * cent + 18 * 5 * cent
    assert (days["2026-11-10"].hours, days["2026-11-10"].rent_pico_usd) == (18, 18 * 5 * cent)
    assert format_usd(sum(day.idle_pico_usd for day in days.values())) == found.idle.idle_usd
    before = PeriodQuery(since=start, until=RISE)
    assert (await books.utilisation(before)).idle == (await month.books_with(rents[:1]).utilisation(before)).idle


async def test_the_rent_of_an_hour_is_in_one_month_alone_though_months_begin_within_it(month: Month) -> None:
    """India's October and November used to pay both for the hour from 18:00 to 19:00 UTC."""
    zone = ZoneInfo("Asia/Kolkata")
    marks = (datetime(2026, 10, 1, tzinfo=zone), datetime(2026, 11, 1, tzinfo=zone), datetime(2026, 12, 1, tzinfo=zone))
    whole, *months = [
        await month.books.gpus.idle(Bounds(us(since), us(until)))
        for since, until in ((marks[0], marks[2]), *pairwise(marks))
    ]
    assert whole is not None
    assert sum(Decimal(one.rent_usd) for one in months if one) == Decimal(whole.rent_usd)
    assert sum(Decimal(one.used_usd) for one in months if one) == Decimal(whole.used_usd)


async def test_gpu_time_is_never_billed_though_its_hour_began_before_the_export(month: Month) -> None:
    at = next(moment_of(entry.intent.accepted_at_us) for entry in month.entries if entry.gpu_seconds)
    asked = BooksQuery(since=at, until=at + timedelta(microseconds=1))
    [row] = [row async for page in (await services(month).files.focus(asked)).pages for row in page.rows]
    assert (row["BilledCost"], row["CapacityReservationStatus"]) == (0, "Used")
    assert row["EffectiveCost"]


@pytest.mark.parametrize("before", [None, 7 * 10**12], ids=["switched on", "at another price"])
async def test_break_even_measures_the_hours_that_were_paid_for_at_their_own_price(
    month: Month, before: int | None
) -> None:
    """An engine switched on in the middle of the month was used a part of what it had been in its own hours; one whose
    rent had changed by then was told to have cost and idled at today's all the time."""
    [rent] = [one for one in present_rents(month.deployment.settings) if one.hour_pico_usd is not None]
    books = month.books_with([replace(rent, hour_pico_usd=before), replace(rent, from_hour=hour_of(RISE))])
    plan = own_engine_plan(month.deployment.settings.engine)
    price = usd(plan.gpu_hour_price_pico_usd)
    of = BreakEvenOf(lambda: month.snapshot, lambda: [OwnGpus(LOCAL_BACKEND, plan, None)])
    service = BreakEvenService(SqlReports(month.database), books, of)
    owned = (await service.break_even(BreakEvenQuery(until=END))).report.owned
    doubled = (await service.break_even(BreakEvenQuery(until=END, gpu_hour_usd=float(price) * 2))).report.owned
    idle = (await books.utilisation(PeriodQuery(until=END))).idle
    assert idle is not None
    assert (owned.is_measured, owned.rent_usd, owned.idle_usd) == (True, Decimal(idle.rent_usd), Decimal(idle.idle_usd))
    assert doubled.rent_usd == 2 * owned.paid_hours * price
    assert doubled.idle_usd == pytest.approx(owned.idle_usd * doubled.rent_usd / owned.rent_usd)
    assert owned.busy_share == pytest.approx(idle.utilisation)


async def test_time_and_capacity_are_equally_far_from_paying(month: Month) -> None:
    """The engine computed for longer than full batches would have taken."""
    plan = own_engine_plan(month.deployment.settings.engine)
    of = BreakEvenOf(lambda: month.snapshot, lambda: [OwnGpus(LOCAL_BACKEND, plan, ENGINE)])
    service = BreakEvenService(SqlReports(month.database), services(month).books, of)
    owned = (await service.break_even(BreakEvenQuery(until=END))).report.owned
    found = await service.utilisation(PeriodQuery(until=END))
    assert found.break_even_utilisation is not None
    assert found.break_even_busy_share is not None
    assert owned.busy_share > 2 * owned.utilisation
    assert owned.busy_share / found.break_even_busy_share == pytest.approx(
        owned.utilisation / found.break_even_utilisation
    )


async def test_without_a_gpu_that_was_paid_for_there_is_no_idle_line(month: Month) -> None:
    none = [replace(rent, hour_pico_usd=None) for rent in present_rents(month.deployment.settings)]
    found = await month.books_with(none).utilisation(PeriodQuery(until=END))
    assert (found.is_configured, found.idle, found.hours) == (False, None, [])
    assert (await month.books_with(none).costs(CostQuery(until=END))).idle is None


async def test_what_was_recorded_counts_and_not_what_the_file_says_today(month: Month) -> None:
    [rent] = [one for one in present_rents(month.deployment.settings) if one.hour_pico_usd is not None]
    asked = PeriodQuery(until=END)
    before = (await services(month).books.utilisation(asked)).idle
    recorded = Recorded([replace(rent, hour_pico_usd=10**12)])
    after = (await services(month, recorded).books.utilisation(asked)).idle
    assert before is not None
    assert after is not None
    assert Decimal(after.rent_usd) == 50 * Decimal(before.rent_usd)


async def test_what_all_gpus_used_is_held_against_no_single_ones_break_even(month: Month) -> None:
    [rent] = [one for one in present_rents(month.deployment.settings) if one.hour_pico_usd is not None]
    beside = Recorded([rent, replace(rent, backend="vllm", provider="vllm")])
    alone, both = [await services(month, of).gpus.utilisation(PeriodQuery(until=END)) for of in (NOTHING, beside)]
    report = (await services(month).gpus.break_even(BreakEvenQuery(until=END))).report
    assert alone.break_even_utilisation == report.unit.break_even_utilisation
    assert alone.break_even_utilisation is not None
    assert (alone.backends, both.backends, both.break_even_utilisation) == (["local"], ["local", "vllm"], None)


def hour_of(moment: datetime) -> int:
    return round(moment.timestamp()) // 3600


async def test_time_on_other_gpus_is_no_use_of_the_engine(month: Month) -> None:
    """Besides the engine there is a vLLM that computes five times as long."""
    store = BesideVllm(month.database)
    rented = make_local("rented", backend="vllm")
    snapshot = replace(month.snapshot, candidates={**month.snapshot.candidates, "rented": rented})
    plan = own_engine_plan(month.deployment.settings.engine)
    of = BreakEvenOf(lambda: snapshot, lambda: [OwnGpus(LOCAL_BACKEND, plan, None)])
    alone = (await month.break_even.break_even(BreakEvenQuery(until=END))).report
    beside = (await BreakEvenService(store, month.books, of).break_even(BreakEvenQuery(until=END))).report
    assert beside.observed.requests > alone.observed.requests
    assert beside.owned.is_measured
    assert (beside.owned.busy_share, beside.owned.idle_usd) == (alone.owned.busy_share, alone.owned.idle_usd)
    assert beside.unit.gpu_seconds_per_request == pytest.approx(alone.unit.gpu_seconds_per_request)


async def test_break_even_is_asked_about_a_vllm_beside_the_engine_or_in_its_place(month: Month) -> None:
    """It knew the bundled engine alone: of a fleet's own servers it said that nothing had run."""
    speed = ThroughputSettings(prefill_tokens_per_second=8000, points=[(1, 90), (16, 1000), (64, 2400)])
    block = BackendSettings(base_url="http://10.0.0.5:8000/v1", gpu_hour_usd=Decimal(2), throughput=speed)
    beside = month.deployment.settings.model_copy(update={"backends": {"vllm": block}})
    off = beside.engine.model_copy(update={"is_enabled": False})
    alone = beside.model_copy(update={"engine": off})
    candidates = {**month.snapshot.candidates, "rented": make_local("rented", backend="vllm")}
    snapshot = replace(month.snapshot, candidates=candidates)

    async def asked(settings: Settings, backend: str | None = None) -> BreakEvenView:
        of = BreakEvenOf(lambda: snapshot, lambda: own_gpus(settings, month.deployment.curve))
        service = BreakEvenService(BesideVllm(month.database), month.books_with(present_rents(settings)), of)
        return await service.break_even(BreakEvenQuery(until=END, backend=backend))

    named, only, bundled = await asked(beside, "vllm"), await asked(alone), await asked(beside)
    assert named.report == only.report
    assert (named.inputs["backend"], named.backends, only.backends) == ("vllm", ["local", "vllm"], ["vllm"])
    [nothing_else] = own_gpus(Settings(engine=off), month.deployment.curve)
    assert (bundled.inputs["backend"], nothing_else.backend, nothing_else.plan.is_running) == ("local", "local", False)
    owned, its_own = named.report.owned, bundled.report.owned
    assert (named.report.plan, owned.rent_usd) == ("vllm at $2 an hour", 2 * owned.paid_hours)
    assert owned.busy_share == pytest.approx(5 * its_own.busy_share)
    with pytest.raises(
        InvalidRequest, match="'gpt' is no backend of your own with a gpu_hour_usd; there are: local, vllm"
    ):
        await asked(beside, "gpt")


class BesideVllm(SqlReports):
    async def hourly_traffic(self, since_us: int, until_us: int, *, on_gpus: bool = False) -> Sequence[HourlyTraffic]:
        rows = await super().hourly_traffic(since_us, until_us, on_gpus=on_gpus)
        more = [replace(row, model="rented", gpu_seconds=5 * row.gpu_seconds) for row in rows if row.gpu_seconds]
        return [*rows, *more]


def test_an_engine_that_is_switched_off_was_not_measured(month: Month) -> None:
    settings = month.deployment.settings.engine
    assert own_engine_plan(settings).is_running
    assert not own_engine_plan(settings.model_copy(update={"is_enabled": False})).is_running
