"""Redis down, restarted, flushed: requests go on, limits are never looser than the leases, and nothing is forgotten."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import cast

import pytest
from redis.asyncio import Redis

from backends.scripted import Outcome, follow
from gateway.errors import Overloaded
from gateway.ledger.entry import Cost, Entry
from gateway.limits.admission import Admission
from gateway.limits.counters import (
    LEASE_SECONDS,
    SILENT_SECONDS,
    Account,
    CountersDown,
    Holding,
    Rate,
    budget_account,
)
from gateway.limits.local_counters import MINUTE_SECONDS
from gateway.limits.treasury import Treasury
from gateway.limits.values import parse_limits
from gateway.rulebook.state import ExplorationSpend, RuleState
from gateway.rulebook.watch import RuleWatch
from gateway.storage.redis.client import CONNECTIONS
from gateway.storage.redis.counters import PREFIX, RedisCounters, connect
from gateway.storage.redis.scripts import KEEP_MS
from gateway.stores import Correction, EntryWanted, Explored
from tests.builders import make_snapshot
from tests.faults.budget_worker import ACCOUNT, NANO, NOW_US, Worker, two_workers
from tests.redis_server import RedisServer
from tests.rig import Rig
from tests.unit.gateway.ledger.builders import make_decision, make_entry, make_intent
from tests.waiting import until

pytestmark = [pytest.mark.faults, pytest.mark.integration]


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[RedisServer]:
    """A server of this file's own, because it is stopped and emptied on purpose."""
    with RedisServer(tmp_path) as running:
        yield running


@pytest.fixture
async def pair(server: RedisServer) -> AsyncIterator[tuple[Worker, Worker]]:
    async with two_workers(server) as workers:
        yield workers


async def is_back(worker: Worker) -> bool:
    try:
        return await worker.spend(1)
    except Overloaded:
        return False


async def test_two_workers_spend_exactly_the_budget(pair: tuple[Worker, Worker]) -> None:
    one, two = pair
    spent = sum(await asyncio.gather(one.spend_all(7), two.spend_all(3)))
    assert 1000 - 7 < spent <= 1000


async def test_down_spends_the_lease_then_says_why_and_recovers_by_itself(
    pair: tuple[Worker, Worker], server: RedisServer
) -> None:
    one, _ = pair
    assert await one.spend(10)
    server.stop()
    from_lease = 0

    async def spend_the_lease() -> None:
        nonlocal from_lease
        while True:
            assert await one.spend(10), "nobody said that the budget is exhausted"
            from_lease += 10

    with pytest.raises(Overloaded, match="cannot be reached") as caught:
        await spend_the_lease()
    assert caught.value.retry_after_seconds
    assert 0 < from_lease < 990, "the lease and no more"
    await one.admission.reserve("free", "another key", 10**12, now_us=NOW_US)
    server.start()
    await until(lambda: is_back(one))


async def test_a_flush_gives_nothing_back_that_was_spent(pair: tuple[Worker, Worker], server: RedisServer) -> None:
    one, two = pair
    for _ in range(10):
        assert await one.spend(40)
        assert await two.spend(20)
    server.flush()
    spent = 600 + sum(await asyncio.gather(one.spend_all(10), two.spend_all(10)))
    assert spent == 1000


async def test_a_key_that_was_dropped_alone_is_made_again(pair: tuple[Worker, Worker]) -> None:
    """Dropped by an eviction policy that the logs warn of, or by hand."""
    one, two = pair
    for _ in range(5):
        assert await one.spend(40)
        assert await two.spend(20)
    for dropped in ("*:meta", "*:books", f"{PREFIX}epoch"):
        assert await one.client.delete(*[key async for key in one.client.scan_iter(dropped)])
        one.purse.give_back()
        await until(lambda: is_back(one))
    epoch = cast(str, await one.client.get(f"{PREFIX}epoch"))
    async with one.client.pipeline() as between_two_questions:  # just as a worker claimed it
        between_two_questions.delete(f"{PREFIX}{epoch}:meta")
        between_two_questions.hset(f"{PREFIX}{epoch}:meta", "fleet", "")
        await between_two_questions.execute()
    one.purse.give_back()
    await until(lambda: is_back(one))
    spent = 304 + sum(await asyncio.gather(one.spend_all(10), two.spend_all(10)))
    assert 1000 - 10 < spent <= 1000


async def test_another_deployment_is_told_to_count_elsewhere_until_the_first_is_gone(server: RedisServer) -> None:
    """Its readings of other books passed as those of the first one: a team of the same name got its budget again."""
    books = {ACCOUNT: 990 * NANO}
    first, second = (Worker(server, name, books, budget=1000, fleet=name, settle_seconds=0.0) for name in "ab")
    await first.keeper.start()
    assert await first.spend(1)
    books.clear()  # as in the other database
    assert not await second.keeper.step()
    with pytest.raises(CountersDown, match="what another deployment spends, one with another pepper"):
        await second.counters.read_books(second.read, is_urgent=True)
    with pytest.raises(Overloaded):
        await second.spend(1)
    assert await first.spend_all(1) == 9
    await _be_silent(second, "a", 2 * KEEP_MS / 1000)
    await until(second.keeper.step)
    assert await second.spend(100)
    for worker in (first, second):
        await worker.counters.aclose()


async def test_a_server_that_stood_still_waits_for_what_everybody_holds(
    server: RedisServer,
) -> None:
    """The worker that comes back first must not get what the others went on spending meanwhile."""
    one, two = (RedisCounters(connect(server.url), worker=name, settle_seconds=3600.0) for name in "ab")
    client = connect(server.url)

    async def books() -> dict[Account, int]:
        return {ACCOUNT: 0}

    nothing = Holding(0, 0, 0, 0)
    await one.read_books(books)
    [meta] = [key async for key in client.scan_iter("*:meta")]
    await client.hset(meta, "opened", 0)  # the time after a start is over
    held = await one.lease(ACCOUNT, limit=1000 * NANO, holding=nothing, need=600 * NANO, want=600 * NANO)
    assert held.amount == 600 * NANO
    await _stand_still(client, meta, seconds=90)
    grant = await two.lease(ACCOUNT, limit=1000 * NANO, holding=nothing, need=600 * NANO, want=600 * NANO)
    assert grant.is_unread
    await client.hset(meta, "opened", 0)
    grant = await two.lease(ACCOUNT, limit=1000 * NANO, holding=nothing, need=600 * NANO, want=600 * NANO)
    assert (grant.amount, grant.held) == (0, 600 * NANO)
    for each in (one, two, client):
        await each.aclose()


async def _stand_still(client: Redis, meta: str, *, seconds: int) -> None:
    """Makes all records older, as if no worker had reported for that long."""
    ago = -1000 * seconds
    await client.hincrby(meta, "heard", ago)
    for worker in cast(list[str], await client.zrange(f"{PREFIX}workers", 0, -1)):
        await client.zincrby(f"{PREFIX}workers", ago, worker)


async def test_a_lease_ends_for_a_worker_that_is_cut_off_before_the_others_have_it(server: RedisServer) -> None:
    """What was spent under it counts once: first as held, however long the books are not read, then as booked."""
    books = {ACCOUNT: 0}
    one, two = (Worker(server, name, books, budget=1000, wait_seconds=0.0, settle_seconds=0.0) for name in "ab")
    for worker in (one, two):
        await worker.keeper.start()
    assert await one.spend(40)
    leased = one.purse.free // NANO
    one.counters.is_cut_off = True
    one.seconds += LEASE_SECONDS / 2
    assert await one.spend(10)
    one.seconds += LEASE_SECONDS / 2
    with pytest.raises(Overloaded, match="is used up or expired"):
        await one.spend(10)
    await _be_silent(two, "a", SILENT_SECONDS)
    spent = await two.spend_all(10)
    assert 0 < spent <= 1000 - 40 - leased, "nobody has read what the other one spent"
    one.ship_all()
    books[ACCOUNT] = 50 * NANO
    while not await two.counters.read_books(two.read, is_urgent=True):
        await asyncio.sleep(0.05)
    assert spent + await two.spend_all(10) == 950
    one.counters.is_cut_off = False
    assert await one.keeper.step()
    assert not await one.spend(1)
    for worker in (one, two):
        await worker.counters.aclose()


async def test_a_lease_that_ended_unspent_is_had_again(server: RedisServer) -> None:
    worker = Worker(server, "a", {}, budget=1000, settle_seconds=0.0)
    await worker.keeper.start()
    assert await worker.spend(40)
    worker.seconds += 10 * LEASE_SECONDS  # as if the machine had slept
    assert await worker.spend_all(10) == 960
    await worker.counters.aclose()


async def _be_silent(other: Worker, name: str, seconds: float) -> None:
    """Makes that worker's last report that much older."""
    await other.client.zincrby(f"{PREFIX}workers", -1000 * seconds, name)


async def test_a_clock_that_is_put_back_stops_nothing(server: RedisServer) -> None:
    """Earlier records are then in the future: readings, the end of a start, the time when a bucket was filled."""
    hour = 3_600_000
    worker = Worker(server, "a", {}, budget=1000, settle_seconds=0.0)
    await worker.keeper.start()
    rate = Rate("r", 2, 2)
    assert await worker.counters.take([rate]) is None
    [meta] = [key async for key in worker.client.scan_iter("*:meta")]
    for what in ("opened", "heard", "began_at", "begun", "read"):
        await worker.client.hincrby(meta, what, hour)
    await worker.client.hincrbyfloat(f"{PREFIX}rate:r", "at", hour)
    await worker.client.persist(f"{PREFIX}rate:r")  # because its expiry would be an hour later too
    await worker.client.zincrby(f"{PREFIX}workers", hour, "a")
    [before] = [cast(float, await worker.client.zscore(f"{PREFIX}workers", "a"))]
    assert await worker.counters.read_books(worker.read), "not too early for one"
    assert cast(float, await worker.client.zscore(f"{PREFIX}workers", "a")) < before - hour / 2
    await worker.keeper.step()
    assert await worker.spend_all(10) == 1000
    await until(lambda: _is_refilled(worker, rate))
    await worker.counters.aclose()


async def _is_refilled(worker: Worker, rate: Rate) -> bool:
    """Whether the bucket fills at all; the test does not wait a minute."""
    shortage = await worker.counters.take([rate])
    return shortage is None or shortage.wait_seconds < MINUTE_SECONDS


async def test_a_restart_gives_nothing_back_that_was_spent(pair: tuple[Worker, Worker], server: RedisServer) -> None:
    one, two = pair
    for _ in range(10):
        assert await one.spend(40)
        assert await two.spend(20)
    server.stop()
    server.start()
    await until(lambda: is_back(one))
    spent = 601 + sum(await asyncio.gather(one.spend_all(9), two.spend_all(9)))
    assert 1000 - 9 < spent <= 1000


async def test_a_stream_under_way_ends_with_length_once_its_lease_is_spent(server: RedisServer) -> None:
    """The real pipeline, with a key whose budget's store dies during the answer."""
    counters = RedisCounters(connect(server.url), worker="rig", settle_seconds=0.0)
    treasury = Treasury(counters)
    admission = Admission(limits={"key-1": parse_limits({"budget_usd": "100"})}, treasury=treasury, wait_seconds=1.0)

    async def books() -> dict[Account, int]:
        return {budget_account("key-1", ACCOUNT.window): 0}

    await counters.read_books(books)
    long = Outcome(pieces=("x" * 400,) * 1000)
    rig = Rig(one=follow([Outcome(), Outcome(), long]), admission=admission, now_us=lambda: NOW_US)
    await rig.ask(stream=True)
    assert rig.entry.finish_reason == "stop"
    server.stop()
    rig.ledger.entries.clear()
    await rig.ask(stream=True)
    assert rig.entry.finish_reason == "stop", "paid from the lease"
    rig.ledger.entries.clear()
    await rig.ask(stream=True)
    assert rig.entry.finish_reason == "length"
    assert rig.entry.error == "budget_reached"
    with pytest.raises(Overloaded):
        await rig.ask(stream=True)
    await counters.aclose()


async def test_a_server_that_takes_no_changes_is_as_good_as_down_and_a_forgotten_script_is_nothing(
    server: RedisServer,
) -> None:
    """Out of memory, a replica after a failover, a server still loading its data; scripts are gone after a restart."""
    shared, client = connect(server.url), connect(server.url)
    counters, rate = RedisCounters(shared, worker="a"), Rate("team:red", 1.0, 60)
    await counters.report({})
    for broken, mended in (
        (("CONFIG", "SET", "maxmemory", "1"), ("CONFIG", "SET", "maxmemory", "0")),
        (("REPLICAOF", "127.0.0.1", "1"), ("REPLICAOF", "NO", "ONE")),
    ):
        connection = await shared.client_id()
        await client.execute_command(*broken)
        with pytest.raises(CountersDown):
            await counters.report({})
        assert await shared.client_id() != connection, "its address may lead to the new primary by now"
        with pytest.raises(CountersDown):
            await counters.lease(ACCOUNT, limit=NANO, holding=Holding(0, 0, 0, 0), need=1, want=1)
        assert await counters.take([rate]) is None, "counted here"
        await client.execute_command(*mended)
        await counters.report({})
    await client.script_flush()
    await counters.report({})
    assert await counters.take([rate]) is None
    for each in (counters, client):
        await each.aclose()


async def test_more_calls_at_once_than_connections_are_no_outage(server: RedisServer) -> None:
    """Otherwise keys with budgets would be refused, and rates counted both here and in Redis."""
    counters = RedisCounters(connect(server.url), worker="a")
    nothing = Holding(0, 0, 0, 0)
    leases = [counters.lease(ACCOUNT, limit=NANO, holding=nothing, need=1, want=1) for _ in range(5 * CONNECTIONS)]
    assert {grant.is_unread for grant in await asyncio.gather(*leases)} == {True}, "it answered, to everybody"
    await counters.aclose()


class NoEntries:
    """RuleBooks in which nothing was explored yet."""

    async def find(self, wanted: EntryWanted) -> Sequence[Entry]:
        return []

    async def get(self, request_id: str) -> Entry | None:
        raise NotImplementedError

    async def corrections(self, request_ids: Sequence[str]) -> Mapping[str, Sequence[Correction]]:
        raise NotImplementedError

    async def explored(self, rule: str, since_us: int, until_us: int) -> AsyncIterator[Sequence[Explored]]:
        yield []


class Explorer:
    """A worker under a rule that may spend 1,000 pico-dollars a day on exploration."""

    rules = "version: 1\nrules: [{name: r, choose: {from: any, explore: 0.5, explore_usd_per_day: '1e-9'}}]\n"

    def __init__(self, server: RedisServer, name: str) -> None:
        self.counters = RedisCounters(connect(server.url), worker=name)
        self.state, snapshot = RuleState(), make_snapshot(self.rules)
        self.spend = ExplorationSpend(self.state, lambda: NOW_US)
        self.watch = RuleWatch(NoEntries(), self.state, self.spend, lambda: snapshot, lambda: NOW_US, self.counters)

    def explore(self, number: int, pico_usd: int) -> None:
        decision = make_decision(rule="r", exploration_pico_usd=pico_usd, expected_cost_pico_usd=pico_usd)
        entry = make_entry(number, intent=make_intent(number, decision=decision), cost=Cost(output_pico_usd=pico_usd))
        self.spend.began(entry.intent.request_id, decision)
        self.spend.settled(entry)


async def test_exploration_has_one_days_money_for_all_workers_and_none_while_nobody_counts(server: RedisServer) -> None:
    one, two = Explorer(server, "one"), Explorer(server, "two")
    await one.watch.start()
    await two.watch.start()
    one.explore(1, 300)
    two.explore(2, 500)
    await one.watch.share()
    await two.watch.share()
    assert two.state.explored_pico_usd == {"r": 800}
    again = Explorer(server, "one")  # killed, and nothing of it is in the database yet
    await again.watch.start()
    await again.watch.share()
    assert again.state.explored_pico_usd == {"r": 800}
    server.flush()
    for worker in (again, two, again):
        await worker.watch.share()
        assert worker.state.explored_pico_usd == {"r": 800}, "what the store forgot they know"
    server.stop()
    await two.watch.share()
    assert two.state.explored_pico_usd["r"] > 1000
    server.start()
    await until(lambda: _is_told(two))
    for worker in (one, two, again):
        await worker.counters.aclose()


async def _is_told(worker: Explorer) -> bool:
    await worker.watch.share()
    return worker.state.explored_pico_usd == {"r": 800}
