from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from gateway.economics.traffic import HourlyTraffic
from gateway.instants import DAY_US, MINUTE_US
from gateway.limits.admission import Admission
from gateway.limits.counters import budget_account, quota_account
from gateway.limits.spending import Spending
from gateway.limits.values import SharedLimits, parse_limits, window_id
from gateway.sums import Dimension, Sums, SumsQuery

NOON_US = round(datetime(2026, 11, 21, 12, tzinfo=UTC).timestamp() * 1e6)
MIDNIGHT_US = round(datetime(2026, 12, 1, tzinfo=UTC).timestamp() * 1e6)


def us(day: str) -> int:
    return round(datetime.fromisoformat(f"{day}T00:00Z").timestamp()) * 1_000_000


class Books:
    """Returns the same rows for every query."""

    def __init__(self, *rows: Sums) -> None:
        self.rows = rows
        self.asked: list[SumsQuery] = []

    async def sums(self, query: SumsQuery) -> Sequence[Sums]:
        self.asked.append(query)
        return self.rows

    async def hourly_traffic(self, since_us: int, until_us: int, *, on_gpus: bool = False) -> Sequence[HourlyTraffic]:
        raise AssertionError

    async def first_and_last_us(self) -> tuple[int, int] | None:
        raise AssertionError

    async def key_names(self, key_ids: Collection[str]) -> Mapping[str, str]:
        return {}


def row(key: str, model: str, status: str = "completed", **sums: Any) -> Sums:
    return Sums({"key": key, "model": model, "status": status}, **sums)


def spending(books: Books, at_us: int = NOON_US, **limits: Mapping[str, object]) -> Spending:
    admission = Admission(
        limits={key: parse_limits(one) for key, one in limits.items()},
        shared=SharedLimits(tiers={"premium": frozenset({"large", "larger"})}),
    )
    return Spending(books, admission, lambda: at_us)


async def test_without_limits_nothing_is_asked() -> None:
    books = Books()
    booked = await spending(books, k={"requests_per_minute": 5})()
    assert (books.asked, booked) == ([], {})


async def test_budgets_are_dollars_quotas_are_requests_and_who_spent_nothing_is_there_too() -> None:
    books = Books(
        row("k", "large", output_pico_usd=30, adjustment_pico_usd=5, requests=2),
        row("k", "larger", requests=1, compute_pico_usd=1),
        row("k", "small", input_pico_usd=4, requests=9),
        row("k", "small", "orphaned", upper_pico_usd=1000, requests=1),
        row("stranger", "large", output_pico_usd=10**9, requests=10**6),
    )
    month = {"budget_usd": "1", "budget_window": "month"}
    quota = {"tier_quotas": {"premium": {"requests": 3, "window": "month"}}}
    booked = await spending(books, k={**month, **quota}, idle=month)()
    window = "month:2026-11-01"
    assert booked == {
        budget_account("k", window): 30 + 5 + 1 + 4 + 1000,
        quota_account("k", "premium", window): 3,
        budget_account("idle", window): 0,
    }


async def test_a_strict_budget_of_many_counts_whoever_spent_it() -> None:
    def spent_by(key: str, team: str | None, project: str | None, pico_usd: int, status: str = "completed") -> Sums:
        group: dict[Dimension, str | None] = {"key": key, "model": "m", "status": status}
        return Sums({**group, "team": team, "project": project}, output_pico_usd=pico_usd, upper_pico_usd=pico_usd)

    books = Books(
        spent_by("a", "red", "search", 1),
        spent_by("b", "red", None, 10),
        spent_by("c", "blue", "search", 100, "orphaned"),
        spent_by("d", None, None, 1000),
    )
    found = spending(books, a={"budget_usd": "1", "budget_window": "day"})
    found.admission.strict = {("team", "red"): 5, ("project", "search"): 5, ("all", ""): 5, ("team", "idle"): 5}
    booked = await found()
    month, day = "month:2026-11-01", "day:2026-11-21"
    assert booked == {
        budget_account("a", day): 1,
        budget_account("red", month, scope="team"): 11,
        budget_account("search", month, scope="project"): 101,
        budget_account("", month, scope="all"): 1111,
        budget_account("idle", month, scope="team"): 0,
    }


async def test_the_days_money_for_shadow_calls_covers_those_and_their_judge_alone() -> None:
    books = Books(
        row("k", "m", output_pico_usd=1),
        row("shadow", "m", output_pico_usd=20),
        row("shadow", "m", "orphaned", upper_pico_usd=300, requests=1),
        row("judge", "j", output_pico_usd=4000),
    )
    found = spending(books, k={"budget_usd": "1", "budget_window": "day"})
    found.admission.shadow_pico_usd = 10_000
    day = "day:2026-11-21"
    assert await found() == {budget_account("k", day): 1, budget_account("", day, scope="shadow"): 4320}


@pytest.mark.parametrize(
    ("window", "since", "until"),
    [
        ("day", "2026-11-21", "2026-11-22"),
        ("month", "2026-11-01", "2026-12-01"),
        ("total", "1970-01-01", "9999-12-31"),
    ],
)
async def test_all_of_the_window_is_asked_for_also_what_was_booked_while_a_clock_was_ahead(
    window: str, since: str, until: str
) -> None:
    books = Books()
    await spending(books, NOON_US + 27 * MINUTE_US, k={"budget_usd": "1", "budget_window": window})()
    [query] = books.asked
    assert query.since_us == us(since)
    assert query.until_us == us(until) or (window == "total" and query.until_us > us(until))
    assert query.until_us % DAY_US == 0, "of whole days, which sums alone can answer"


async def test_around_its_end_both_windows_are_read() -> None:
    for at_us in (MIDNIGHT_US - MINUTE_US, MIDNIGHT_US + MINUTE_US):
        books = Books()
        booked = await spending(books, at_us, k={"budget_usd": "1"})()
        assert {account.window for account in booked} == {"month:2026-11-01", "month:2026-12-01"}
        assert books.asked[0].until_us == MIDNIGHT_US
        assert (books.asked[1].since_us, books.asked[1].until_us) == (MIDNIGHT_US, us("2027-01-01"))


@pytest.mark.parametrize("hours", [1, 40 * 24])
async def test_a_stream_that_outlives_its_window_may_still_spend_what_that_has_left(hours: int) -> None:
    """It outlives it by an hour, or the clock was set forward by more than a month."""
    books = Books(row("k", "m", output_pico_usd=40_000))
    found = spending(books, MIDNIGHT_US - MINUTE_US, k={"budget_usd": "0.0000001"})  # 100,000 pico-dollars
    admission, counters = found.admission, found.admission.treasury.counters
    await counters.read_books(found)
    await admission.reserve("r", "k", 3_000, now_us=MIDNIGHT_US - MINUTE_US)
    later = replace(found, now_us=lambda: MIDNIGHT_US + hours * 60 * MINUTE_US)
    await counters.read_books(later)
    assert await admission.fund("r", 60_000, wait_seconds=0.0)
    assert not await admission.fund("r", 60_001, wait_seconds=0.0), "and no more"
    admission.settle("r", 10)
    now = window_id("month", later.now_us())
    assert {account.window for account in await later()} == {now}, "not for ever"
