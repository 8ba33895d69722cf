"""The contract of all Counters; for the shared implementation also with a second worker, a flush and a crash."""

import asyncio
import time
from collections.abc import Collection

import pytest

from gateway.limits.counters import (
    Account,
    AccountBooks,
    Books,
    Counters,
    CountersDown,
    Grant,
    Holding,
    Rate,
    budget_account,
    no_end_users,
)
from gateway.storage.redis.counters import RedisCounters, connect
from tests.contract.redis_counters import PATIENCE_SECONDS, Pair, shared
from tests.redis_server import RedisServer

pytestmark = pytest.mark.integration
WINDOW = "month:2026-11-01"
ACCOUNT = Account("key:k", WINDOW)
NOTHING = Holding(0, 0)
NANO = 1000


def books_showing(spent: int, account: Account = ACCOUNT) -> Books:
    async def read() -> dict[Account, int]:
        return {account: spent * account.unit}

    return read


async def lease(
    counters: Counters, limit: int, *, need: int, want: int = 0, holding: Holding = NOTHING, account: Account = ACCOUNT
) -> Grant:
    """Leases amounts in the account's unit. Waits while a new store settles."""
    unit = account.unit
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        grant = await counters.lease(
            account, limit=limit * unit, holding=holding, need=need * unit, want=max(need, want) * unit
        )
        if not grant.is_unread:
            return grant
        await counters.report({})
        assert time.monotonic() < deadline, "the books were read and still nothing is leased"
        await asyncio.sleep(0.05)


def refilled(began: float, per_minute: int) -> int:
    """What a bucket that was full at that time has gained since: nothing, unless the machine stalled."""
    return int((time.monotonic() - began) * per_minute / 60)


async def test_a_rate_is_taken_until_it_is_gone_and_says_how_long_to_wait(counters: Counters) -> None:
    rates = [Rate("key:k:requests", 1, 6), Rate("key:k:tokens", 100, 10_000)]
    began, taken = time.monotonic(), 0
    while (shortage := await counters.take(rates)) is None:
        taken += 1
        assert taken < 100
    assert 6 <= taken <= 6 + refilled(began, 6)
    assert shortage.rate == rates[0]
    assert 0 < shortage.wait_seconds <= 10


async def test_what_one_bucket_lacks_is_taken_from_none(counters: Counters) -> None:
    plenty, short = Rate("plenty", 1, 2), Rate("short", 5, 5)
    assert await counters.take([short]) is None
    for _ in range(5):
        shortage = await counters.take([plenty, short])
        assert shortage is not None
        assert shortage.rate == short
    assert await counters.take([plenty]) is None
    assert await counters.take([plenty]) is None


async def test_what_is_left_is_told_of_every_bucket_and_only_where_it_was_taken(counters: Counters) -> None:
    rates = [Rate("few", 1, 3), Rate("many", 1000, 60_000)]
    began, left = time.monotonic(), list[float]()
    assert await counters.take(rates, left) is None
    assert left == [2, 59_000], "nobody was there before, and it was full"
    assert await counters.take(rates, left) is None
    few, many = left[2:]
    assert 1 <= few < 2 + refilled(began, 3)
    assert 58_000 <= many < 58_001 + refilled(began, 60_000)
    while await counters.take(rates) is None:
        pass
    refused = list[float]()
    while await counters.take(rates, refused) is None:
        refused.clear()
    assert not refused


async def test_an_amount_above_the_rate_needs_a_full_bucket(counters: Counters) -> None:
    assert await counters.take([Rate("b", 500, 100)]) is None
    shortage = await counters.take([Rate("b", 1, 100)])
    assert shortage is not None
    assert shortage.wait_seconds > 60


async def test_a_lease_never_passes_the_limit(counters: Counters) -> None:
    await counters.read_books(books_showing(40))
    assert (await lease(counters, 100, need=61)).amount == 0
    refused = await lease(counters, 100, need=51, holding=Holding(10 * NANO, 4 * NANO))
    assert refused == Grant(0, 40 * NANO, surely_gone=40 * NANO)
    assert (await lease(counters, 100, need=50, holding=Holding(10 * NANO, 4 * NANO))).amount == 50 * NANO


async def test_more_than_needed_is_leased_where_there_is_plenty(counters: Counters) -> None:
    await counters.read_books(books_showing(0))
    grant = await lease(counters, 10_000, need=10, want=100)
    assert grant.amount == 100 * NANO


async def test_an_account_that_was_not_read_leases_nothing(counters: Counters) -> None:
    await counters.read_books(books_showing(0))
    await lease(counters, 10, need=1)
    other = Account("key:new", WINDOW)
    assert (await counters.lease(other, limit=10**9, holding=NOTHING, need=1, want=1)).is_unread


async def test_books_that_show_less_are_not_believed_at_once(counters: Counters) -> None:
    """A lagging replica took over; what it lacks was spent nevertheless, and is shipped again."""
    await counters.read_books(books_showing(50))
    counted = (await counters.report({})).read
    while not await counters.read_books(books_showing(20), is_urgent=True):
        await asyncio.sleep(0.05)
    assert (await lease(counters, 100, need=51)).amount == 0
    assert (await counters.report({})).read == counted, "what it should have seen by now is held no longer"
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (await lease(counters, 100, need=51)).amount == 0:
        await counters.read_books(books_showing(20), is_urgent=True)
        assert time.monotonic() < deadline, "less is never believed"
        await asyncio.sleep(0.05)
    assert (await counters.report({})).read > counted


async def test_less_after_a_correction_is_a_refund(counters: Counters) -> None:
    """Believed only after a minute, with all that was booked meanwhile, it was taken from others' budgets so long."""
    numbers = iter([7, 8])

    async def corrections() -> int:
        return next(numbers)

    await counters.read_books(books_showing(50), corrections=corrections)
    counted = (await counters.report({})).read
    while not await counters.read_books(books_showing(20), is_urgent=True, corrections=corrections):
        await asyncio.sleep(0.05)
    assert (await counters.report({})).read > counted
    assert (await lease(counters, 100, need=80)).amount == 80 * NANO


async def test_books_that_show_less_of_one_account_tell_of_the_others(counters: Counters) -> None:
    other = Account("key:other", WINDOW)

    async def read() -> dict[Account, int]:
        return {ACCOUNT: 20 * NANO, other: 30 * NANO}

    await counters.read_books(books_showing(50))
    while not await counters.read_books(read, is_urgent=True):
        await asyncio.sleep(0.05)
    assert (await lease(counters, 100, need=71, account=other)).amount == 0
    assert (await lease(counters, 100, need=70, account=other)).amount == 70 * NANO


ONE, OTHER = (budget_account(f"k:{name}@home", "day:2026-11-01", scope="end_user") for name in ("one", "other"))


async def known(counters: Counters, spent: int, account: Account = ONE) -> int:
    async def read(accounts: Collection[Account]) -> dict[Account, int]:
        assert set(accounts) == {account}
        return {account: spent * NANO}

    return await counters.read_accounts([account], read)


async def again(counters: Counters, of_end_users: AccountBooks = no_end_users) -> None:
    while not await counters.read_books(books_showing(0), is_urgent=True, of_end_users=of_end_users):
        await asyncio.sleep(0.05)


async def test_an_end_user_is_known_once_read_and_in_later_readings_while_somebody_holds(counters: Counters) -> None:
    asked: list[set[Account]] = []

    async def read(accounts: Collection[Account]) -> dict[Account, int]:
        asked.append(set(accounts))
        return dict.fromkeys(accounts, 60 * NANO)

    await again(counters, read)
    assert (await counters.lease(ONE, limit=NANO, holding=NOTHING, need=1, want=1)).is_unread
    assert [await known(counters, 40, account) for account in (ONE, OTHER)] == [1, 1]
    assert await known(counters, 0) == 0, "it is known already"
    assert (await lease(counters, 100, need=61, account=ONE)).amount == 0
    assert (await lease(counters, 100, need=10, account=OTHER)).amount == 10 * NANO
    await again(counters, read)
    assert asked[-1] == {OTHER}, "who was only refused is not held"
    assert await lease(counters, 70, need=11, account=OTHER) == Grant(0, 60 * NANO, surely_gone=60 * NANO)
    await counters.report({OTHER: NOTHING})
    assert (await lease(counters, 70, need=10, account=OTHER)).amount == 10 * NANO
    await counters.report({OTHER: NOTHING})


async def test_an_end_user_whom_nobody_holds_leaves_with_the_next_reading(counters: Counters) -> None:
    await again(counters)
    assert await known(counters, 40) == 1
    assert (await lease(counters, 100, need=10, account=ONE)).amount == 10 * NANO
    await counters.report({ONE: NOTHING})
    await again(counters)
    assert (await counters.lease(ONE, limit=NANO, holding=NOTHING, need=1, want=1)).is_unread


async def test_what_an_end_user_had_spent_before_a_reading_began_is_not_taken_for_that_reading(
    counters: Counters,
) -> None:
    """By then others may hold no longer what it does not show."""
    assert await known(counters, 1) == 0, "nothing has been read at all"
    await again(counters)

    async def slow(_: Collection[Account]) -> dict[Account, int]:
        await again(counters)
        return {ONE: 0}

    assert await counters.read_accounts([ONE], slow) == 0
    assert (await counters.lease(ONE, limit=NANO, holding=NOTHING, need=1, want=1)).is_unread
    assert await known(counters, 40) == 1
    assert (await lease(counters, 100, need=61, account=ONE)).amount == 0


async def test_an_end_user_read_during_a_reading_stays_known_and_one_read_before_it_does_not(
    counters: Counters,
) -> None:
    await again(counters)
    assert await known(counters, 10, OTHER) == 1

    async def read() -> dict[Account, int]:
        assert await known(counters, 40) == 1
        return {ACCOUNT: 0}

    while not await counters.read_books(read, is_urgent=True):
        await asyncio.sleep(0.05)
    assert (await lease(counters, 100, need=61, account=ONE)).amount == 0
    assert (await counters.lease(OTHER, limit=NANO, holding=NOTHING, need=1, want=1)).is_unread


async def test_what_was_not_sent_may_be_in_a_reading_of_one_end_user_and_is_not_surely_gone(counters: Counters) -> None:
    await again(counters)
    read = (await counters.report({})).read
    assert await known(counters, 30) == 1
    mine = Holding(50 * NANO, 50 * NANO, 50 * NANO, read)
    assert await lease(counters, 100, need=31, holding=mine, account=ONE) == Grant(0, 30 * NANO, surely_gone=30 * NANO)


async def test_requests_are_counted_one_by_one(counters: Counters) -> None:
    quota = Account("tier:premium:k", "day:2026-11-21", unit=1)
    await counters.read_books(books_showing(3, quota))
    assert (await lease(counters, 5, need=2, account=quota)).amount == 2
    assert (await lease(counters, 5, need=1, holding=Holding(2, 0), account=quota)).amount == 0


async def test_a_reading_is_numbered(counters: Counters) -> None:
    before = await counters.report({})
    assert before.read == 0
    await counters.read_books(books_showing(1), is_urgent=True)
    after = await counters.report({})
    assert after.read == after.begun > before.begun


async def test_amounts_below_the_unit_are_rounded_against_the_spender(counters: Counters) -> None:
    await counters.read_books(books_showing(0))
    await lease(counters, 1, need=1)
    for _ in range(2):
        grant = await counters.lease(ACCOUNT, limit=1999, holding=Holding(1, 1), need=1, want=1)
        assert grant.amount <= 1998
    refused = await counters.lease(ACCOUNT, limit=1500, holding=Holding(1, 1), need=1500, want=1500)
    assert refused.amount == 0


async def test_two_workers_share_one_limit(pair: Pair) -> None:
    one, two = pair
    await one.read_books(books_showing(0))
    assert (await lease(one, 100, need=60)).amount == 60 * NANO
    refused = await lease(two, 100, need=50)
    assert refused == Grant(0, 0, 60 * NANO, 0, surely_gone=0)
    standing = await one.report({ACCOUNT: Holding(60 * NANO, 25 * NANO)})
    assert standing.tight == {ACCOUNT}, "the other one was refused: what is free should go back"
    await one.report({ACCOUNT: Holding(25 * NANO, 25 * NANO)})
    assert await lease(two, 100, need=76) == Grant(0, 0, 25 * NANO, 25 * NANO, surely_gone=0)
    assert (await lease(two, 100, need=75)).amount == 75 * NANO


async def test_only_what_no_reading_can_show_is_surely_gone(pair: Pair) -> None:
    """A charge that one worker still holds though the books include it must not refuse the other worker's request."""
    one, two = pair
    await one.read_books(books_showing(30))
    read = (await one.report({})).read
    await one.report({ACCOUNT: Holding(50 * NANO, 50 * NANO, 20 * NANO, read)})
    assert await lease(two, 100, need=21) == Grant(0, 30 * NANO, 50 * NANO, 50 * NANO, surely_gone=50 * NANO)
    while not await two.read_books(books_showing(50), is_urgent=True):
        await asyncio.sleep(0.05)
    assert await lease(two, 100, need=21) == Grant(0, 50 * NANO, 50 * NANO, 50 * NANO, surely_gone=50 * NANO)


async def test_two_workers_share_one_rate(pair: Pair) -> None:
    began, taken = time.monotonic(), 0
    for _ in range(10):
        for counters in pair:
            taken += await counters.take([Rate("r", 1, 7)]) is None
    assert 7 <= taken <= 7 + refilled(began, 7)


async def test_a_thousand_leases_at_once_never_pass_the_limit(pair: Pair) -> None:
    held = dict.fromkeys(pair, 0)
    await pair[0].read_books(books_showing(100))
    await lease(pair[0], 101, need=1)

    async def ask(counters: RedisCounters) -> None:
        # A worker's own leases are sequential (see Treasury); those of two workers are not.
        for _ in range(500):
            holding = Holding(held[counters] * NANO, 0)
            held[counters] += (await lease(counters, 700, need=1, want=5, holding=holding)).amount // NANO

    await asyncio.gather(*(ask(counters) for counters in pair))
    assert sum(held.values()) == 600


async def test_after_a_flush_nothing_is_leased_until_the_books_were_read_and_everybody_spoke(
    pair: Pair, redis_server: RedisServer
) -> None:
    one, two = pair
    await one.read_books(books_showing(10))
    assert (await lease(one, 100, need=50)).amount == 50 * NANO
    redis_server.flush()
    forgotten = await two.lease(ACCOUNT, limit=100 * NANO, holding=NOTHING, need=90 * NANO, want=90 * NANO)
    assert forgotten.is_unread
    assert (await two.report({})).read == 0
    await two.read_books(books_showing(20), is_urgent=True)
    await one.report({ACCOUNT: Holding(50 * NANO, 10 * NANO)})
    assert await lease(two, 100, need=31) == Grant(0, 20 * NANO, 50 * NANO, 10 * NANO, surely_gone=20 * NANO)
    assert (await lease(two, 100, need=30)).amount == 30 * NANO


async def test_a_restarted_store_is_rebuilt_even_if_it_remembers(tmp_path_factory: pytest.TempPathFactory) -> None:
    with RedisServer(tmp_path_factory.mktemp("durable"), persists=True) as server:
        counters = shared(server)
        await counters.read_books(books_showing(10))
        await lease(counters, 100, need=1)
        server.stop()
        with pytest.raises(CountersDown):
            await lease(counters, 100, need=1)
        with pytest.raises(CountersDown):
            await counters.report({})
        server.start()
        assert (await counters.report({})).read == 0
        assert (await counters.lease(ACCOUNT, limit=NANO, holding=NOTHING, need=NANO, want=NANO)).is_unread
        await counters.aclose()


async def test_while_the_store_is_down_a_worker_keeps_to_its_share_of_a_rate(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with RedisServer(tmp_path_factory.mktemp("down")) as server:
        one, two = (shared(server, name) for name in ("one", "two"))
        await two.report({})
        await one.report({})
        server.stop()
        began, taken = time.monotonic(), 0
        while await one.take([Rate("r", 1, 10)]) is None:
            taken += 1
        assert 5 <= taken <= 5 + refilled(began, 5)
        server.start()
        await one.report({})
        assert await one.take([Rate("r", 1, 10)]) is None, "shared again"
        await one.aclose()
        await two.aclose()


async def test_an_unreachable_store_says_so() -> None:
    counters = RedisCounters(connect("redis://127.0.0.1:1/0"), worker="one")
    with pytest.raises(CountersDown, match=r"127\.0\.0\.1:1"):
        await counters.report({})
    await counters.aclose()


async def test_a_process_shares_its_latest_sums(counters: Counters) -> None:
    assert await counters.share("explored:1", {"r": 1 << 53}) == {"r": 1 << 53}
    assert await counters.share("explored:1", {"r": (1 << 53) + 1, "q": 2}) == {"r": (1 << 53) + 1, "q": 2}
    assert await counters.share("explored:2", {}) == {}


async def test_sums_are_everybodys_also_of_a_process_that_ended(pair: Pair, redis_server: RedisServer) -> None:
    one, two = pair
    assert await one.share("explored:1", {"r": 5}) == {"r": 5}
    assert await two.share("explored:1", {"r": 7, "q": 1}) == {"r": 12, "q": 1}
    again = shared(redis_server)  # restarted, under the same name
    assert await again.share("explored:1", {"r": 1}) == {"r": 13, "q": 1}
    await again.aclose()
