"""What the books show of everything that is limited: budgets in dollars, tier quotas in requests. Reads sums only."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from gateway.admission import Admission
from gateway.counters import Account, Booked, budget_account, quota_account
from gateway.ledger.entry import Status
from gateway.limits import Limits, WindowName, window_end, window_id, window_start
from gateway.stores import Dimension, ReportStore, Sums, SumsQuery

HOUR_US = 3_600_000_000
EDGE_US = 600_000_000
"""Around a window's end both are read: requests of the old one may still settle, and clocks differ a little."""


@dataclass(frozen=True, slots=True)
class Spending:
    """Called by Counters; see gateway.counters.Books."""

    store: ReportStore
    admission: Admission
    now_us: Callable[[], int]

    async def __call__(self) -> Booked:
        limits = {key: one for key, one in self.admission.limits.items() if one.budget_usd or one.tier_quotas}
        spent: dict[Account, int] = {}
        windows: set[str] = set()
        for window in sorted(set(_windows(limits.values()))):
            for at_us in (self.now_us() - EDGE_US, self.now_us() + EDGE_US):
                name = window_id(window, at_us)
                if name not in windows:
                    windows.add(name)
                    spent.update((account, 0) for account in _accounts(limits, window, name))
                    for row in await self._rows(window, at_us):
                        self._add(spent, limits, window, name, row)
        return Booked(spent, frozenset(windows))

    async def _rows(self, window: WindowName, at_us: int) -> list[Sums]:
        start = _us(window_start(window, at_us))
        end = window_end(window, at_us)
        until = (self.now_us() // HOUR_US + 2) * HOUR_US  # whole hours are read from sums alone
        if end is not None:
            until = min(until, _us(end))
        by: tuple[Dimension, ...] = ("key", "model", "status")
        return list(await self.store.sums(SumsQuery(start, max(start + HOUR_US, until), by)))

    def _add(
        self, spent: dict[Account, int], limits: dict[str, Limits], window: WindowName, name: str, row: Sums
    ) -> None:
        key = row.group["key"] or ""
        own = limits.get(key)
        if own is None:
            return
        if own.budget_usd is not None and own.budget_window == window:
            spent[budget_account(key, name)] += _cost(row)
        for tier, quota in own.tier_quotas.items():
            if quota.window == window and row.group["model"] in self.admission.shared.tiers.get(tier, ()):
                spent[quota_account(key, tier, name)] += row.requests


def _accounts(limits: Mapping[str, Limits], window: WindowName, name: str) -> Iterator[Account]:
    for key, own in limits.items():
        if own.budget_usd is not None and own.budget_window == window:
            yield budget_account(key, name)
        yield from (quota_account(key, tier, name) for tier, quota in own.tier_quotas.items() if quota.window == window)


def _windows(limits: Iterable[Limits]) -> Iterator[WindowName]:
    for one in limits:
        if one.budget_usd is not None:
            yield one.budget_window
        for quota in one.tier_quotas.values():
            yield quota.window


def _cost(row: Sums) -> int:
    """A request whose process died counts as the most it may have cost: a strict budget errs on that side."""
    if row.group["status"] == Status.orphaned.value:
        return row.upper_pico_usd
    return row.corrected_cost_pico_usd


def _us(moment: datetime) -> int:
    return round(moment.timestamp()) * 1_000_000
