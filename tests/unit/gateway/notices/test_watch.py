"""Budgets are told of once, by whichever worker sees it first, and again only where nobody took the notice."""

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import pytest

from gateway.errors import NoticeNotTaken
from gateway.instants import microseconds as us
from gateway.limits.openings import Opening
from gateway.limits.values import Limits, window_id
from gateway.notices.forecast_notice import Foreseen
from gateway.notices.notice import BudgetSpent, Document, Mark
from gateway.notices.watch import LOOK_US, BudgetNotices, NoticeState
from gateway.stores import Budget, NewKey
from gateway.sums import Dimension, Sums, SumsQuery
from tests.unit.gateway.api.memory_stores import MemoryBudgets, MemoryKeys, NoSums

USD = 10**12
NOVEMBER = datetime(2026, 11, 11, 15, tzinfo=UTC)
DECEMBER = datetime(2026, 12, 1, 0, 1, tzinfo=UTC)


class MemoryNotices:
    """NoticeStore without a database, in which a look is always due; nothing here is ever abandoned."""

    def __init__(self) -> None:
        self.claimed: dict[Mark, int] = {}
        self.sent: list[Mark] = []
        self.present = NoticeState(0)
        self.is_free = True

    async def state(self) -> NoticeState:
        return self.present

    async def take_turn(self, seen: NoticeState) -> bool:
        return self.is_free

    async def note_failed(self, problem: str) -> None:
        self.present = replace(self.present, failing_since_us=1, problem=problem)

    async def note_done(self, *, is_sent: bool, is_foreseen: bool) -> None:
        self.present = replace(self.present, failing_since_us=None)
        if is_sent:
            self.present = replace(self.present, sent_at_us=2)
        if is_foreseen:
            self.present = replace(self.present, forecast_at_us=self.present.now_us)

    async def told(self, windows: Collection[str]) -> Sequence[Mark]:
        return [mark for mark in self.sent if mark.window_id in windows]

    async def claim(self, mark: Mark, at_us: int) -> bool:
        await asyncio.sleep(0)
        return self.claimed.setdefault(mark, at_us) == at_us and mark not in self.sent

    async def give_back(self, mark: Mark, claimed_at_us: int) -> None:
        del self.claimed[mark]

    async def set_told(self, mark: Mark, at_us: int) -> None:
        self.sent.append(mark)


class SpentBy(NoSums):
    """A ReportStore in which each (month, team) has spent so many dollars, all with one key."""

    def __init__(self) -> None:
        self.dollars: dict[tuple[int, str], int] = {}

    async def sums(self, query: SumsQuery) -> Sequence[Sums]:
        spent: dict[tuple[str | None, ...], int] = {}
        for (month, team), dollars in self.dollars.items():
            if query.since_us <= us(datetime(2026, month, 1, tzinfo=UTC)) < query.until_us:
                group: dict[Dimension, str | None] = {
                    "team": team,
                    "project": None,
                    "key": "key-0",
                    "status": "completed",
                }
                values = tuple(group[name] for name in query.by)
                spent[values] = spent.get(values, 0) + dollars * USD
        return [Sums(dict(zip(query.by, values, strict=True)), input_pico_usd=pico) for values, pico in spent.items()]


class Unread(SpentBy):
    async def sums(self, query: SumsQuery) -> Sequence[Sums]:
        raise AssertionError("there was nothing to ask")


@dataclass
class Rig:
    """What workers share, and any number of them."""

    budgets: MemoryBudgets = field(default_factory=MemoryBudgets)
    keys: MemoryKeys = field(default_factory=MemoryKeys)
    limits: dict[str, Limits] = field(default_factory=dict[str, Limits])
    reports: SpentBy = field(default_factory=SpentBy)
    store: MemoryNotices = field(default_factory=MemoryNotices)
    posted: list[Document] = field(default_factory=list[Document])
    counted: list[str] = field(default_factory=list[str])
    shown: list[bool] = field(default_factory=list[bool])
    foreseen: list[Foreseen] = field(default_factory=list[Foreseen])
    opened: list[Opening] = field(default_factory=list[Opening])
    is_down: bool = False
    now: datetime = NOVEMBER

    async def post(self, notice: Document) -> None:
        await asyncio.sleep(0)
        if self.is_down:
            raise NoticeNotTaken("the webhook took nothing")
        self.posted.append(notice)

    def worker(self, *, seconds_ahead: int = 0) -> BudgetNotices:
        return BudgetNotices(
            budgets=self.budgets,
            keys=self.keys,
            limits=lambda: self.limits,
            reports=self.reports,
            store=self.store,
            post=self.post,
            count=self.counted.append,
            shares_per_mille=(800, 1000),
            page=None,
            now_us=lambda: us(self.now) + seconds_ahead,
            foresee=self.foresee,
            show_failing=self.shown.append,
            openings=self.openings,
        )

    async def openings(self, windows: Collection[str]) -> Sequence[Opening]:
        return [one for one in self.opened if one.window_id in windows]

    async def foresee(self) -> list[Foreseen]:
        return self.foreseen

    @property
    def said(self) -> list[tuple[object, ...]]:
        return [(one["scope"], one["name"], one["spent_usd"], one["reached_share"]) for one in self.posted]


@pytest.fixture
async def rig() -> Rig:
    found = Rig()
    await found.budgets.set(Budget("team", "red", 100 * USD, "ada", 1))
    return found


async def test_each_share_is_told_once_when_it_is_reached(rig: Rig) -> None:
    worker = rig.worker()
    for dollars in (10, 79, 80, 81, 99, 100, 150):
        rig.reports.dollars[11, "red"] = dollars
        await worker.look()
        await worker.look()
    assert rig.said == [("team", "red", "80.000000000000", 0.8), ("team", "red", "100.000000000000", 1.0)]
    assert rig.counted == ["sent", "sent"]


async def test_what_was_spent_before_it_came_here_counts_until_its_month_ends(rig: Rig) -> None:
    rig.opened = [Opening("team", "red", "month:2026-11-01", 75 * USD), Opening("key", "red", "month:2026-11-01", USD)]
    rig.reports.dollars[11, "red"] = 10
    await rig.worker().look()
    assert rig.said == [("team", "red", "85.000000000000", 0.8)]
    rig.now, rig.reports.dollars = DECEMBER, {(12, "red"): 10}
    await rig.worker().look()
    assert len(rig.said) == 1


async def test_of_workers_that_look_at_once_one_tells(rig: Rig) -> None:
    rig.reports.dollars[11, "red"] = 85
    await asyncio.gather(*(rig.worker(seconds_ahead=n).look() for n in range(5)))
    await rig.worker().look()
    assert len(rig.posted) == 1


async def test_what_was_not_taken_is_told_at_a_later_look(rig: Rig) -> None:
    rig.reports.dollars[11, "red"] = 85
    rig.is_down = True
    for _ in range(2):
        with pytest.raises(NoticeNotTaken):
            await rig.worker().look()
    assert rig.store.claimed == {}, "a claim was kept by who could not tell"
    assert rig.store.present.problem == "the webhook took nothing"
    rig.is_down = False
    await rig.worker().look()
    assert rig.store.present.failing_since_us is None
    await rig.worker().look()
    assert len(rig.posted) == 1
    assert rig.counted == ["failed", "failed", "sent"]
    assert rig.shown == [False, True, True, True, True, False, False]


async def test_what_waits_no_more_is_not_shown_as_failing(rig: Rig) -> None:
    rig.reports.dollars[11, "red"] = 85
    rig.is_down = True
    with pytest.raises(NoticeNotTaken):
        await rig.worker().look()
    await rig.budgets.remove("team", "red", author="ada")
    await rig.worker().look()
    assert rig.store.present.failing_since_us is None
    assert rig.shown[-1] is False


async def test_who_has_no_turn_reads_no_books_and_hears_that_telling_fails() -> None:
    for state, is_free in ((NoticeState(0), False), (NoticeState(LOOK_US, looked_at_us=1), True)):
        rig = Rig(reports=Unread())
        await rig.budgets.set(Budget("team", "red", 100 * USD, "ada", 1))
        rig.store.present, rig.store.is_free = replace(state, failing_since_us=1), is_free
        await rig.worker().look()
        assert rig.shown == [True]


@pytest.mark.parametrize(
    ("now_us", "looked_at_us", "is_due"),
    [(0, None, True), (LOOK_US, 0, True), (LOOK_US - 1, 0, False), (5, 5, False), (4, 5, True)],
)
def test_a_look_is_due_after_a_while_and_where_the_last_was_by_a_clock_that_was_ahead(
    now_us: int, looked_at_us: int | None, is_due: bool
) -> None:
    assert NoticeState(now_us, looked_at_us=looked_at_us).is_due is is_due


def test_forecasts_are_due_once_for_each_complete_day() -> None:
    def state(at: datetime, last: datetime | None) -> NoticeState:
        return NoticeState(us(at), forecast_at_us=None if last is None else us(last))

    assert state(NOVEMBER, None).is_forecast_due
    assert not state(NOVEMBER, NOVEMBER.replace(hour=1)).is_forecast_due
    assert state(NOVEMBER, NOVEMBER.replace(hour=0, minute=59)).is_forecast_due
    assert not state(NOVEMBER.replace(hour=0, minute=59), NOVEMBER.replace(day=10)).is_forecast_due


def heading_for(rig: Rig, dollars: int, spent: int) -> Foreseen:
    budget = BudgetSpent("team", "red", "red", window_id("month", us(rig.now)), 100 * USD, spent * USD, False)
    day = NOVEMBER.date().replace(day=20)
    return Foreseen(budget, 30, 10, 0.9, dollars * USD, dollars * USD, dollars * USD, day, day, None)


async def test_a_month_that_heads_beyond_its_budget_is_told_once_and_looked_at_once_a_day(rig: Rig) -> None:
    rig.foreseen = [heading_for(rig, 130, spent=40)]
    rig.store.present = NoticeState(us(NOVEMBER))
    await rig.worker().look()
    assert [(one["event"], one["name"], one["runs_out"]) for one in rig.posted] == [
        ("budget_forecast_exceeded", "red", "2026-11-20")
    ]
    assert not rig.store.present.is_forecast_due
    rig.store.present = NoticeState(us(NOVEMBER))
    await rig.worker().look()
    assert len(rig.posted) == 1
    rig.reports.dollars[11, "red"] = 85
    await rig.worker().look()
    assert [one["event"] for one in rig.posted] == ["budget_forecast_exceeded", "budget_share_reached"]


async def test_a_forecast_that_was_not_taken_is_told_later(rig: Rig) -> None:
    rig.foreseen, rig.is_down = [heading_for(rig, 130, spent=40)], True
    with pytest.raises(NoticeNotTaken):
        await rig.worker().look()
    assert rig.store.present.is_forecast_due
    rig.is_down = False
    await rig.worker().look()
    assert len(rig.posted) == 1


async def test_a_new_window_is_told_of_anew(rig: Rig) -> None:
    rig.reports.dollars |= {(11, "red"): 85, (12, "red"): 3}
    await rig.worker().look()
    rig.now = DECEMBER
    await rig.worker().look()
    assert len(rig.posted) == 1, "what November spent is none of December's"
    rig.reports.dollars[12, "red"] = 90
    await rig.worker().look()
    assert [one["window_ends"] for one in rig.posted] == ["2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z"]


async def test_a_changed_amount_starts_its_shares_anew(rig: Rig) -> None:
    rig.reports.dollars[11, "red"] = 100
    await rig.worker().look()
    await rig.budgets.set(Budget("team", "red", 200 * USD, "ada", 2))
    await rig.worker().look()
    assert len(rig.posted) == 1, "half of the new amount is no news"
    rig.reports.dollars[11, "red"] = 160
    await rig.worker().look()
    await rig.budgets.set(Budget("team", "red", 150 * USD, "ada", 3))
    await rig.worker().look()
    assert [(one["amount_usd"], one["reached_share"]) for one in rig.posted] == [
        ("100.000000000000", 1.0),
        ("200.000000000000", 0.8),
        ("150.000000000000", 1.0),
    ]


async def test_budgets_of_everything_and_of_keys_are_told_of_too(rig: Rig) -> None:
    rig.reports.dollars |= {(10, "red"): 30, (11, "red"): 20, (11, "blue"): 70}
    await rig.budgets.set(Budget("all", "", 100 * USD, "ada", 1, stops=True))
    await rig.keys.create(NewKey("app"), author="ada")
    rig.limits["key-0"] = Limits(budget_usd="100", budget_window="total")
    rig.limits["key-of-nobody"] = Limits(budget_usd="0.000001")
    await rig.worker().look()
    assert rig.said == [
        ("all", "", "90.000000000000", 0.8),
        ("key", "app", "120.000000000000", 1.0),
    ]
    assert [one["stops"] for one in rig.posted] == [True, True]
    assert rig.posted[1]["key_id"] == "key-0"


async def test_a_revoked_key_is_not_told_of(rig: Rig) -> None:
    rig.reports.dollars[11, "blue"] = 70
    await rig.keys.create(NewKey("app"), author="ada")
    rig.limits["key-0"] = Limits(budget_usd="10")
    await rig.keys.revoke("key-0", author="ada")
    await rig.worker().look()
    assert rig.posted == []


async def test_without_budgets_the_books_are_not_read() -> None:
    await Rig(reports=Unread()).worker().look()
