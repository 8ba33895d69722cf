"""A budget during its month: what is spent, and what the complete days forecast for the rest."""

import asyncio
import gc
import weakref
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta

import pytest

from gateway.instants import microseconds as us
from gateway.limits.openings import Opening
from gateway.reports.budgets_service import BudgetsService
from gateway.reports.daily_costs import BudgetBurn, DailyCost, DailyHistory, Range, TooShort
from gateway.reports.forecast import burn_of_month
from gateway.stores import Budget
from gateway.sums import Sums, SumsQuery
from tests.unit.gateway.api.memory_stores import MemoryBudgets, NoSums

USD = 10**12
NOW = datetime(2026, 11, 11, 15, tzinfo=UTC)
TOMORROW = datetime(2026, 11, 12, tzinfo=UTC)
FIRST_HOUR = datetime(2026, 11, 1, 7, tzinfo=UTC)


def ten_dollars_a_day(first: date, days: int) -> tuple[DailyCost, ...]:
    return tuple(DailyCost(first + timedelta(days=n), 10 * USD) for n in range(days))


class TenDollarsADay(NoSums):
    """Every day cost ten dollars, also today; the ledger began on a morning."""

    def __init__(self) -> None:
        self.asked: list[SumsQuery] = []

    async def sums(self, query: SumsQuery) -> Sequence[Sums]:
        self.asked.append(query)
        ends, begins = min(query.until_us, us(TOMORROW)), max(query.since_us, us(datetime(2026, 11, 1, tzinfo=UTC)))
        days = max(0, (ends - begins) // 86_400_000_000)
        if not query.by:
            return [Sums({}, input_pico_usd=10 * USD * days)]
        first = date(1970, 1, 1) + timedelta(microseconds=query.since_us)
        return [Sums({"day": (first + timedelta(days=n)).isoformat()}, input_pico_usd=10 * USD) for n in range(days)]

    async def first_and_last_us(self) -> tuple[int, int] | None:
        return us(FIRST_HOUR), us(NOW)


def nothing_ahead(history: DailyHistory, budget: int, today: date) -> BudgetBurn | None:
    return None


async def test_spent_includes_today_and_the_outlook_rests_on_complete_days() -> None:
    store, reports = MemoryBudgets(), TenDollarsADay()
    seen: list[tuple[DailyHistory, int, date]] = []

    def note(history: DailyHistory, budget: int, today: date) -> BudgetBurn | None:
        seen.append((history, budget, today))
        return BudgetBurn(100 * USD, budget, Range(105 * USD, 150 * USD, 190 * USD), 0.0, None, None, None)

    async def take_over() -> None: ...

    service = BudgetsService(store, reports, note, take_over, now_us=lambda: us(NOW))
    await store.set(Budget("team", "red", 200 * USD, "ada", 1))
    [standing] = await service.standings()
    assert standing.spent_pico_usd == 110 * USD
    history = DailyHistory(ten_dollars_a_day(date(2026, 11, 2), 9), ten_dollars_a_day(date(2026, 11, 1), 10), 10 * USD)
    assert seen == [(history, 200 * USD, date(2026, 11, 11))]
    assert standing.burn is not None
    assert standing.burn.projected == Range(110 * USD, 150 * USD, 190 * USD), "never less than what is spent"
    assert all(query.filters == {"team": "red"} for query in reports.asked)
    await service.standings()
    assert len(seen) == 1, "the same days were simulated twice"


class Outlook(BudgetBurn):
    """An object whose release can be observed."""


async def test_of_each_budget_there_is_one_outlook_however_often_it_was_changed() -> None:
    made: list[weakref.ref[Outlook]] = []

    def look_ahead(history: DailyHistory, budget: int, today: date) -> BudgetBurn | None:
        outlook = Outlook(0, budget, Range(0, 0, 0), 0.0, None, None, None)
        made.append(weakref.ref(outlook))
        return outlook

    async def take_over() -> None: ...

    # A thread keeps its last result until the next one; with a single thread, that is the one that collects.
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))

    async def is_held() -> list[bool]:
        await asyncio.to_thread(gc.collect)
        return [one() is not None for one in made]

    service = BudgetsService(MemoryBudgets(), TenDollarsADay(), look_ahead, take_over, now_us=lambda: us(NOW))
    for dollars in (100, 200, 300):
        await service.set(Budget("team", "red", dollars * USD, "ada", 1))
        await service.standings()
    assert await is_held() == [False, False, True]
    assert await service.remove("team", "red", author="ada")
    await service.standings()
    assert await is_held() == [False] * 3


@pytest.mark.parametrize(("opened", "runs_out"), [(50, date(2026, 11, 16)), (150, date(2026, 11, 6))])
async def test_what_was_spent_before_it_came_here_is_gone_and_teaches_no_forecast(opened: int, runs_out: date) -> None:
    async def openings(windows: Collection[str]) -> Sequence[Opening]:
        assert list(windows) == ["month:2026-11-01"]
        return [Opening("team", "red", "month:2026-11-01", opened * USD)]

    async def take_over() -> None: ...

    store = MemoryBudgets()
    await store.set(Budget("team", "red", 200 * USD, "ada", 1))
    now_us = us(NOW)
    service = BudgetsService(
        store, TenDollarsADay(), burn_of_month, take_over, now_us=lambda: now_us, openings=openings
    )
    [standing] = await service.standings()
    assert (standing.spent_pico_usd, standing.opening_pico_usd) == ((110 + opened) * USD, opened * USD)
    burn = standing.burn
    assert burn is not None
    assert (burn.spent_pico_usd, burn.budget_pico_usd) == ((110 + opened) * USD, 200 * USD)
    assert burn.projected.middle_pico_usd == pytest.approx((300 + opened) * USD, rel=0.01)
    assert (burn.probability_of_exceeding, burn.runs_out_middle) == (1.0, runs_out)


async def test_every_change_is_taken_over_and_only_a_change() -> None:
    taken: list[list[Budget]] = []
    store = MemoryBudgets()

    async def take_over() -> None:
        taken.append(list(await store.budgets()))

    service = BudgetsService(store, TenDollarsADay(), nothing_ahead, take_over, now_us=lambda: us(NOW))
    budget = Budget("team", "red", 200 * USD, "ada", 1, stops=True)
    await service.set(budget)
    assert not await service.remove("team", "blue", author="ada")
    assert await service.remove("team", "red", author="ada")
    assert taken == [[budget], []]


async def test_who_sets_a_budget_hears_how_it_stands_without_a_look_at_thousands_of_others() -> None:
    store, reports = MemoryBudgets(), TenDollarsADay()
    await store.set(Budget("team", "blue", 100 * USD, "ada", 1))

    async def take_over() -> None: ...

    service = BudgetsService(store, reports, nothing_ahead, take_over, now_us=lambda: us(NOW))
    standing = await service.set(Budget("team", "red", 200 * USD, "ada", 1))
    assert (standing.budget.name, standing.spent_pico_usd) == ("red", 110 * USD)
    assert {query.filters["team"] for query in reports.asked} == {"red"}


def test_a_steady_spend_meets_the_budget_when_it_should() -> None:
    days = ten_dollars_a_day(date(2026, 11, 1), 10)
    burn = burn_of_month(DailyHistory(days, days, 0), 205 * USD, date(2026, 11, 11))
    assert burn.projected.middle_pico_usd == pytest.approx(300 * USD, rel=0.01)
    assert burn.projected.low_pico_usd <= burn.projected.middle_pico_usd <= burn.projected.high_pico_usd
    assert burn.probability_of_exceeding == 1
    assert burn.runs_out_middle == date(2026, 11, 21)


def test_one_day_says_nothing() -> None:
    days = ten_dollars_a_day(date(2026, 11, 1), 1)
    with pytest.raises(TooShort):
        burn_of_month(DailyHistory(days, days, 0), USD, date(2026, 11, 2))
