"""Budget notices on both databases: a unique row is the claim to send one, and the spending comes from the books."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from types import MappingProxyType

import pytest
from sqlalchemy import event, select
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.errors import NoticeNotTaken
from gateway.ledger.entry import Cost, Status
from gateway.limits.admission import Admission
from gateway.limits.counters import budget_account
from gateway.limits.spending import Spending
from gateway.limits.values import Limits
from gateway.notices.notice import Mark
from gateway.notices.watch import ABANDONED_US, BudgetNotices, NoticeState
from gateway.notices.webhook import Webhook
from gateway.reports.budgets_service import BudgetsService
from gateway.reports.daily_costs import DailyHistory
from gateway.storage.sql.budgets import SqlBudgets
from gateway.storage.sql.keys import SqlKeyStore
from gateway.storage.sql.ledger import SqlLedger
from gateway.storage.sql.notices import SqlNotices
from gateway.storage.sql.reports import SqlReports
from gateway.storage.tables.administration import budget_notices
from gateway.stores import Budget, NewKey
from tests.unit.gateway.ledger.builders import make_entry, make_intent
from tests.webhook_receiver import Receiver, webhook_receiver

pytestmark = pytest.mark.integration

USD = 10**12
PEPPER = b"p" * 32
JANUARY = 1_767_225_600_000_000
FEBRUARY = JANUARY + 31 * 86_400_000_000
MARK = Mark("team", "search", "month:2026-01-01", 100 * USD, 800)


@pytest.fixture(autouse=True)
def _always_due(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.notices.watch.LOOK_US", 0)


async def test_of_many_workers_one_looks_and_the_others_ask_for_one_row(
    engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.notices.watch.LOOK_US", 25_000_000)
    await SqlBudgets(engine).set(Budget("team", "search", 100 * USD, "ada", 1))
    await spend(engine, 1, 90)
    asked: list[str] = []

    def note(connection: object, cursor: object, statement: str, *rest: object) -> None:
        asked.append(statement)

    event.listen(engine.sync_engine, "before_cursor_execute", note)
    with webhook_receiver() as receiver:
        workers = [replica(engine, receiver, JANUARY + 10**9 + n) for n in range(4)]
        await asyncio.gather(*(worker.look() for worker in workers))
        first = [one for one in asked if "FROM budgets" in one]
        asked.clear()
        for worker in workers:
            await worker.look()
    assert len(receiver.documents) == 1
    assert len(first) == 1, "more than one looked"
    read = [one for one in asked if one != "BEGIN" and "clock_timestamp" not in one]
    assert len(read) == 4
    assert all("FROM notice_state" in one for one in read)


async def test_a_turn_is_one_workers_and_comes_again(engine: AsyncEngine) -> None:
    stores = [SqlNotices(engine) for _ in range(5)]
    for _ in range(3):
        state = await stores[0].state()
        assert sorted(await asyncio.gather(*(one.take_turn(state) for one in stores))) == [False] * 4 + [True]


async def test_that_telling_fails_since_when_and_why_is_known_to_all_until_it_works(engine: AsyncEngine) -> None:
    await SqlBudgets(engine).set(Budget("all", "", 100 * USD, "ada", 1))
    await spend(engine, 1, 90)
    other = SqlNotices(engine)
    assert (await other.state()).looked_at_us is None
    with webhook_receiver([500] * 6) as receiver:
        states: list[NoticeState] = []
        for n in range(2):
            with pytest.raises(NoticeNotTaken):
                await replica(engine, receiver, JANUARY + 10**9 + n).look()
            states.append(await other.state())
        await replica(engine, receiver, JANUARY + 10**9 + 3).look()
    first, second = states
    assert first.failing_since_us == second.failing_since_us == first.failed_at_us
    assert second.failed_at_us is not None
    assert first.failed_at_us is not None
    assert second.failed_at_us > first.failed_at_us
    assert second.problem == "the webhook of `notices` took nothing: it answered 500; see that its address is right"
    assert second.next_try_at_us is not None
    assert second.sent_at_us is None
    last = await other.state()
    assert (last.failing_since_us, last.next_try_at_us, last.failed_at_us) == (None, None, second.failed_at_us)
    assert last.sent_at_us is not None


async def test_of_many_claims_one_is_granted(engine: AsyncEngine) -> None:
    granted = await asyncio.gather(*(SqlNotices(engine).claim(MARK, JANUARY + n) for n in range(8)))
    assert sorted(granted) == [False] * 7 + [True]
    assert await SqlNotices(engine).told(["month:2026-01-01"]) == [], "it is not sent yet"
    other = replace(MARK, share_per_mille=1000)
    assert await SqlNotices(engine).claim(other, JANUARY)


async def test_what_is_told_stays_told(engine: AsyncEngine) -> None:
    notices = SqlNotices(engine)
    assert await notices.claim(MARK, JANUARY)
    await notices.set_told(MARK, JANUARY + 1)
    await notices.give_back(MARK, JANUARY)
    assert await notices.told(["month:2026-01-01"]) == [MARK]
    assert await notices.told(["month:2026-02-01"]) == []
    assert not await notices.claim(MARK, JANUARY + 100 * ABANDONED_US)


async def test_a_claim_is_given_back_by_its_holder_alone(engine: AsyncEngine) -> None:
    notices = SqlNotices(engine)
    assert await notices.claim(MARK, JANUARY)
    await notices.give_back(MARK, JANUARY + 7)
    assert not await notices.claim(MARK, JANUARY + 8)
    await notices.give_back(MARK, JANUARY)
    assert await notices.claim(MARK, JANUARY + 9)


@pytest.mark.parametrize("claimed_at_us", [JANUARY - ABANDONED_US - 1, JANUARY + ABANDONED_US + 1])
async def test_a_claim_of_somebody_who_died_ends(engine: AsyncEngine, claimed_at_us: int) -> None:
    assert await SqlNotices(engine).claim(MARK, claimed_at_us)
    granted = await asyncio.gather(*(SqlNotices(engine).claim(MARK, JANUARY) for _ in range(4)))
    assert sorted(granted) == [False] * 3 + [True]


def replica(
    engine: AsyncEngine, receiver: Receiver, now_us: int, limits: Mapping[str, Limits] = MappingProxyType({})
) -> BudgetNotices:
    async def at_once(seconds: float) -> None: ...

    return BudgetNotices(
        budgets=SqlBudgets(engine),
        keys=SqlKeyStore(engine, PEPPER),
        limits=lambda: limits,
        reports=SqlReports(engine),
        store=SqlNotices(engine),
        post=Webhook(receiver.url, at_once).post,
        count=lambda _: None,
        shares_per_mille=(800, 1000),
        page=None,
        now_us=lambda: now_us,
    )


async def spend(engine: AsyncEngine, number: int, dollars: int, at_us: int = JANUARY, key_id: str = "key-1") -> None:
    intent = make_intent(number, accepted_at_us=at_us + number, key_id=key_id)
    await SqlLedger(engine).insert([make_entry(number, intent=intent, cost=Cost(input_pico_usd=dollars * USD))])


async def test_replicas_tell_a_webhook_what_the_books_show_once(engine: AsyncEngine) -> None:
    await SqlBudgets(engine).set(Budget("team", "search", 100 * USD, "ada", 1))
    await SqlBudgets(engine).set(Budget("project", "ranking", 1000 * USD, "ada", 1))
    with webhook_receiver() as receiver:
        for number, dollars in enumerate((79, 1, 30)):
            await spend(engine, number, dollars)
            await asyncio.gather(*(replica(engine, receiver, JANUARY + 10**9 + n).look() for n in range(3)))
        await spend(engine, 9, 85, FEBRUARY)
        await asyncio.gather(*(replica(engine, receiver, FEBRUARY + 10**9 + n).look() for n in range(3)))
    assert [
        (one["name"], one["spent_usd"], one["reached_share"], one["window_ends"]) for one in receiver.documents
    ] == [
        ("search", "80.000000000000", 0.8, "2026-02-01T00:00:00Z"),
        ("search", "110.000000000000", 1.0, "2026-02-01T00:00:00Z"),
        ("search", "85.000000000000", 0.8, "2026-03-01T00:00:00Z"),
    ]


async def test_a_notice_that_was_not_taken_comes_later(engine: AsyncEngine) -> None:
    await SqlBudgets(engine).set(Budget("all", "", 100 * USD, "ada", 1))
    await spend(engine, 1, 90)
    with webhook_receiver([500, 500, 500]) as receiver:
        with pytest.raises(NoticeNotTaken):
            await replica(engine, receiver, JANUARY + 10**9).look()
        async with engine.connect() as connection:
            assert (await connection.execute(select(budget_notices))).all() == []
        await replica(engine, receiver, JANUARY + 10**9 + 1).look()
        await replica(engine, receiver, JANUARY + 10**9 + 2).look()
    assert len(receiver.documents) == 4
    assert {one["spent_usd"] for one in receiver.documents} == {"90.000000000000"}


async def test_keys_are_told_of_by_their_names_and_windows(engine: AsyncEngine) -> None:
    key, _ = await SqlKeyStore(engine, PEPPER).create(NewKey("app"), author="ada")
    limits = {key.record.id: Limits(budget_usd="10", budget_window="day")}
    await spend(engine, 1, 9, key_id=key.record.id)
    tomorrow = JANUARY + 86_400_000_000
    with webhook_receiver() as receiver:
        for now_us in (JANUARY + 10**9, tomorrow):
            await replica(engine, receiver, now_us, limits).look()
    assert [(one["scope"], one["name"], one["key_id"], one["window_ends"]) for one in receiver.documents] == [
        ("key", "app", key.record.id, "2026-01-02T00:00:00Z")
    ]


async def test_what_a_process_left_behind_counts_alike_wherever_a_budget_is_told_of(engine: AsyncEngine) -> None:
    """With its upper bound: for refusals, notices and display."""
    await SqlBudgets(engine).set(Budget("team", "search", 100 * USD, "ada", 1, stops=True))
    key, _ = await SqlKeyStore(engine, PEPPER).create(NewKey("app", team="search"), author="ada")
    limits = {key.record.id: Limits(budget_usd="100")}
    await spend(engine, 1, 30, key_id=key.record.id)
    left = {"status": Status.orphaned, "cost": None, "cost_lower_pico_usd": 0, "cost_upper_pico_usd": 55 * USD}
    intent = make_intent(2, accepted_at_us=JANUARY, key_id=key.record.id)
    await SqlLedger(engine).insert([make_entry(2, intent=intent, **left)])
    with webhook_receiver() as receiver:
        await replica(engine, receiver, JANUARY + 10**9, limits).look()
    assert [(one["scope"], one["spent_usd"]) for one in receiver.documents] == [
        ("team", "85.000000000000"),
        ("key", "85.000000000000"),
    ]
    reports = SqlReports(engine)
    admission = Admission(limits=limits, strict={("team", "search"): 100 * USD})
    booked = await Spending(reports, admission, lambda: JANUARY + 10**9)()
    assert {account: pico for account, pico in booked.items() if pico} == {
        budget_account("search", "month:2026-01-01", scope="team"): 85 * USD,
        budget_account(key.record.id, "month:2026-01-01"): 85 * USD,
    }
    service = BudgetsService(SqlBudgets(engine), reports, no_outlook, nothing, now_us=lambda: JANUARY + 10**9)
    assert [one.spent_pico_usd for one in await service.standings()] == [85 * USD]


async def nothing() -> None: ...


def no_outlook(history: DailyHistory, budget_pico_usd: int, today: date) -> None:
    return None
