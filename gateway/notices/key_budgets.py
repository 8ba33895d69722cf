"""What keys have spent of their own budgets, as shown to people. Knows protocols only; reads no clock."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from gateway.access.keys import KeyRecord
from gateway.limits.openings import Openings, by_budget, no_openings
from gateway.limits.spending import counted_pico_usd, of_window
from gateway.limits.values import Limits, WindowName, window_id
from gateway.stores import KeyStore
from gateway.sums import ReportStore


@dataclass(frozen=True, slots=True)
class KeySpent:
    """A key's budget and its spending in the current window (UTC), of which `opening_pico_usd` was spent before the key
    was imported."""

    record: KeyRecord
    window: WindowName
    amount_pico_usd: int
    spent_pico_usd: int
    opening_pico_usd: int = 0

    @property
    def share(self) -> float:
        """Share of the budget spent; 1 for a budget of $0, which is always spent."""
        return self.spent_pico_usd / self.amount_pico_usd if self.amount_pico_usd else 1.0


async def spent_by_keys(
    keys: KeyStore,
    reports: ReportStore,
    limits: Mapping[str, Limits],
    now_us: int,
    openings: Openings = no_openings,
) -> list[KeySpent]:
    """For keys that have a budget and are not revoked."""
    budgets = {key: one for key, one in limits.items() if one.budget_usd is not None}
    if not budgets:
        return []
    found = [one.record for one in await keys.list() if one.record.id in budgets and one.record.revoked_at_us is None]
    windows: set[WindowName] = {budgets[one.id].budget_window for one in found}
    spent: Counter[tuple[WindowName, str | None]] = Counter()
    for window in windows:
        for row in await reports.sums(of_window(window, now_us, ("key", "status"))):
            spent[window, row.group["key"]] += counted_pico_usd(row)
    ids = {window: window_id(window, now_us) for window in windows}
    opened = by_budget(await openings(ids.values()) if ids else ())

    def of(record: KeyRecord) -> KeySpent:
        own = budgets[record.id]
        window, amount = own.budget_window, own.budget_pico_usd or 0
        opening = opened.get(("key", record.id, ids[window]), 0)
        return KeySpent(record, window, amount, spent[window, record.id] + opening, opening)

    return [of(one) for one in found]


async def spent_by_key(
    key_id: str, reports: ReportStore, window: WindowName, now_us: int, openings: Openings = no_openings
) -> int:
    """What one key has spent in the current window, in pico-USD, with what it had spent before it was imported."""
    query = replace(of_window(window, now_us, ("status",)), filters={"key": key_id})
    spent, name = sum(map(counted_pico_usd, await reports.sums(query))), window_id(window, now_us)
    return spent + by_budget(await openings([name])).get(("key", key_id, name), 0)
