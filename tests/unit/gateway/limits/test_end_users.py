"""Budgets of end users: never overspent and never refused falsely, however many there are; nothing of them is kept."""

import asyncio
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.errors import BudgetExhausted, DatabaseDown, InvalidRequest, Overloaded
from gateway.limits.admission import Admission
from gateway.limits.budget_keeper import BudgetKeeper
from gateway.limits.counters import Account, Holding, Standing, budget_account
from gateway.limits.local_counters import LocalCounters
from gateway.limits.treasury import Treasury
from gateway.limits.values import new_limits, parse_limits, window_id
from gateway.process.tasks import end_tasks
from tests.rig import Rig
from tests.unit.gateway.ledger.builders import make_entry, make_intent
from tests.virtual_time import run

NOW_US = 1_795_000_000_000_000
LIMIT = 100
LIMITS = parse_limits({"end_user_budget_usd": f"{LIMIT}e-12", "end_user_budget_window": "day"})


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that costs what it reserves; all times in seconds."""

    end_user: str
    amount: int
    at: float
    lasts: float
    is_sent_after: float
    is_booked_after: float


class HeardCounters(LocalCounters):
    """The real counters, recording what was reported last."""

    reported: Mapping[Account, Holding] = MappingProxyType({})

    async def report(self, holdings: Mapping[Account, Holding]) -> Standing:
        self.reported = holdings
        return await super().report(holdings)


class Gateway:
    """One process, its background tasks, and a ledger in which each request arrives late."""

    def __init__(self, *, wait_seconds: float = 600.0) -> None:
        clock = asyncio.get_running_loop().time
        self.counters = HeardCounters(clock=clock)
        self.treasury = Treasury(self.counters, monotonic=clock)
        self.admission = Admission(limits={"k": LIMITS}, treasury=self.treasury, wait_seconds=wait_seconds)
        self.booked = Counter[Account]()
        self.read: list[int] = []
        self.is_down = False
        self.keeper = BudgetKeeper(self.treasury, self.books, self.of_end_users)
        self.reserved = Counter[str]()

    async def books(self) -> dict[Account, int]:
        await asyncio.sleep(0.05)
        return {}

    async def of_end_users(self, accounts: Collection[Account]) -> dict[Account, int]:
        if self.is_down:
            raise DatabaseDown("gone")
        self.read.append(len(accounts))
        await asyncio.sleep(0.05)
        found = {account: self.booked[account] for account in accounts}
        await asyncio.sleep(0.05)
        return found

    async def start(self) -> list[asyncio.Task[None]]:
        await self.keeper.start()
        return [asyncio.create_task(one()) for one in (self.keeper.run, self.keeper.read_end_users)]

    async def serve(self, number: int, asked: Asked) -> None:
        await asyncio.sleep(asked.at)
        name, end_user = str(number), asked.end_user
        try:
            await self.admission.reserve(name, "k", asked.amount, now_us=NOW_US, end_user=end_user)
        except BudgetExhausted:
            assert self.reserved[end_user] + asked.amount > LIMIT, "refused falsely"
            return
        self.reserved[end_user] += asked.amount
        assert self.reserved[end_user] <= LIMIT, "overspent"
        await asyncio.sleep(asked.lasts)
        self.admission.settle(name, asked.amount)
        await asyncio.sleep(asked.is_sent_after)
        self.admission.sending([name])
        await asyncio.sleep(asked.is_booked_after)
        self.booked[account_of(end_user)] += asked.amount
        await asyncio.sleep(asked.is_booked_after)
        self.admission.shipped([name])


def account_of(end_user: str) -> Account:
    return budget_account(f"k:{end_user}", window_id("day", NOW_US), scope="end_user")


a_while = st.floats(0, 12)
requests = st.builds(
    Asked,
    end_user=st.sampled_from(["ada", "grace:1@day"]),
    amount=st.integers(1, 60),
    at=st.floats(0, 90),
    lasts=a_while,
    is_sent_after=a_while,
    is_booked_after=st.floats(0, 1),
)


@given(st.lists(requests, max_size=30))
@settings(deadline=None)
def test_parallel_requests_spend_what_each_end_user_has_and_no_more(asked: list[Asked]) -> None:
    async def all_of_them() -> None:
        gateway = Gateway()
        tasks = await gateway.start()
        await asyncio.gather(*(gateway.serve(number, one) for number, one in enumerate(asked)))
        await end_tasks(tasks)

    run(all_of_them)


def test_of_a_thousand_end_users_who_left_nothing_is_held_or_read() -> None:
    async def come_and_leave() -> None:
        gateway = Gateway()
        tasks = await gateway.start()
        asked = [Asked(f"user {number}", 1, 0.0, 1.0, 1.0, 0.1) for number in range(1000)]
        await asyncio.gather(*(gateway.serve(number, one) for number, one in enumerate(asked)))
        assert gateway.read == [1, 999], "all that came meanwhile are read together"
        await asyncio.sleep(60)
        assert 1000 in gateway.read[1:], "readings include whoever is held"
        gateway.read.clear()
        await asyncio.sleep(60)
        assert not gateway.read
        assert gateway.counters.reported == {}
        await end_tasks(tasks)

    run(come_and_leave)


def test_what_was_not_shipped_before_a_restart_is_held() -> None:
    async def restarted() -> None:
        gateway = Gateway(wait_seconds=1.0)
        entry = make_entry(1, intent=make_intent(1, key_id="k", end_user="ada", accepted_at_us=NOW_US))
        gateway.admission.carry(entry)
        tasks = await gateway.start()
        with pytest.raises(BudgetExhausted, match="this end user of the key"):
            await gateway.admission.reserve("a", "k", 1, now_us=NOW_US, end_user="ada")
        await gateway.admission.reserve("b", "k", LIMIT, now_us=NOW_US, end_user="grace")
        await end_tasks(tasks)

    run(restarted)


def test_while_the_database_is_away_a_new_end_user_waits_and_is_told_and_then_served() -> None:
    async def waiting() -> None:
        gateway = Gateway(wait_seconds=0.0)
        tasks = await gateway.start()
        gateway.is_down = True
        with pytest.raises(Overloaded, match="still being read from the database"):
            await gateway.admission.reserve("a", "k", 1, now_us=NOW_US, end_user="ada")
        gateway.is_down = False
        await gateway.admission.reserve("b", "k", 1, now_us=NOW_US, end_user="ada")
        await end_tasks(tasks)

    run(waiting)


async def test_every_request_of_such_a_key_names_one_and_is_booked_for_them() -> None:
    rig = Rig(admission=Admission(limits={"key-1": parse_limits({"end_user_budget_usd": "1"})}, wait_seconds=0.0))
    with pytest.raises(InvalidRequest, match="must name one: in safety_identifier or user"):
        await rig.ask()
    await rig.ask(user="ada")
    assert rig.entry.intent.end_user == "ada"
    rig.pipeline.admission.limits = {"key-1": parse_limits({"end_user_budget_usd": "0.000000000001"})}
    with pytest.raises(BudgetExhausted, match=r"The budget of this end user of the key is \$0\.00"):
        await rig.ask(user="grace")


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        ({"end_user_budget_usd": "much"}, "end_user_budget_usd is not an amount"),
        ({"end_user_budget_usd": "-1"}, "end_user_budget_usd cannot be negative"),
        ({"end_user_budget_usd": "1e12"}, "end_user_budget_usd must be at most"),
        ({"end_user_budget_usd": "1", "end_user_budget_window": "total"}, "end_user_budget_window"),
    ],
)
def test_an_amount_that_is_none_is_refused(limits: dict[str, str], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        new_limits(limits)
