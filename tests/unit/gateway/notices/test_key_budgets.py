"""What is told of a key's own budget is what admission counts of it."""

from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Any

from gateway.instants import DAY_US, microseconds
from gateway.limits.openings import Opening
from gateway.limits.values import Limits
from gateway.notices.key_budgets import spent_by_keys
from gateway.stores import NewKey
from gateway.sums import Sums, SumsQuery
from tests.unit.gateway.api.memory_stores import MemoryKeys, OneSum

USD = 10**12
NOW_US = microseconds(datetime(2026, 11, 11, 15, tzinfo=UTC))


class Books(OneSum):
    """Of the key `key-0`: $3 today, and two requests that a process left behind, one of them without a bound."""

    def __init__(self) -> None:
        self.asked: list[SumsQuery] = []

    async def sums(self, query: SumsQuery) -> Sequence[Sums]:
        self.asked.append(query)
        orphans: Any = {"key": "key-0", "status": "orphaned"}
        return [
            Sums({"key": "key-0", "status": "completed"}, requests=1, input_pico_usd=3 * USD),
            Sums(orphans, requests=2, unpriced_requests=2, unbounded_requests=1, upper_pico_usd=USD),
        ]


async def keys_with(*names: str) -> MemoryKeys:
    keys = MemoryKeys()
    for name in names:
        await keys.create(NewKey(name, team="red"), author="test")
    return keys


async def test_orphans_count_as_the_most_that_is_known_of_them() -> None:
    books = Books()
    limits = {"key-0": Limits(budget_usd="8", budget_window="day"), "key-1": Limits(requests_per_minute=1)}
    [found] = await spent_by_keys(await keys_with("app", "other"), books, limits, NOW_US)
    assert (found.record.name, found.amount_pico_usd, found.spent_pico_usd) == ("app", 8 * USD, 4 * USD)
    assert found.share == 0.5
    [asked] = books.asked
    assert (asked.since_us, asked.until_us) == (NOW_US // DAY_US * DAY_US, (NOW_US // DAY_US + 1) * DAY_US)


async def test_a_key_that_is_revoked_or_may_spend_nothing() -> None:
    keys = await keys_with("revoked", "stopped")
    await keys.revoke("key-0", author="test")
    limits = {key: Limits(budget_usd="0", budget_window="total") for key in ("key-0", "key-1")}
    [found] = await spent_by_keys(keys, Books(), limits, NOW_US)
    assert (found.record.name, found.spent_pico_usd, found.share) == ("stopped", 0, 1.0)


async def test_what_a_key_spent_before_it_came_here_counts_and_is_told_apart() -> None:
    async def openings(windows: Collection[str]) -> Sequence[Opening]:
        assert set(windows) == {"day:2026-11-11"}
        return [Opening("key", "key-0", "day:2026-11-11", 2 * USD), Opening("team", "key-0", "day:2026-11-11", USD)]

    limits = {"key-0": Limits(budget_usd="8", budget_window="day")}
    [found] = await spent_by_keys(await keys_with("app"), Books(), limits, NOW_US, openings)
    assert (found.spent_pico_usd, found.opening_pico_usd, found.share) == (6 * USD, 2 * USD, 0.75)
