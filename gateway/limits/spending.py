"""What the ledger shows for everything limited: budgets in dollars, tier quotas in requests. Reads sums only."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from gateway.instants import microseconds
from gateway.ledger.entry import OFF_PATH, Status
from gateway.limits.admission import Admission
from gateway.limits.counters import Account, budget_account, quota_account
from gateway.limits.values import (
    SHADOW_WINDOW,
    BudgetScope,
    Limits,
    WindowName,
    window_end,
    window_id,
    window_of_id,
    window_start,
)
from gateway.sums import Dimension, ReportStore, Sums, SumsQuery

FOR_EVER_US = 100_000 * 366 * 86_400_000_000
"""Later than any entry; queries of whole days are answered from sums alone."""
STRICT_WINDOW: WindowName = "month"
Shared = tuple[BudgetScope | Literal["shadow"], str]
"""Scope and name of a budget that does not belong to one key."""
KEYS_ALONE: tuple[Dimension, ...] = ("key", "model", "status")
EDGE_US = 600_000_000
"""Around a window's end both windows are read: requests of the old one may still settle, and clocks differ slightly. A
window in which one of this worker's requests is in progress is read as long as that lasts."""


@dataclass(frozen=True, slots=True)
class Spending:
    """Called by Counters; see gateway.limits.counters.Books."""

    store: ReportStore
    admission: Admission
    now_us: Callable[[], int]

    async def __call__(self) -> dict[Account, int]:
        limits = {key: one for key, one in self.admission.limits.items() if one.budget_usd or one.tier_quotas}
        shared: dict[WindowName, list[Shared]] = {}
        if self.admission.strict:
            shared[STRICT_WINDOW] = list[Shared](self.admission.strict)
        if self.admission.shadow_pico_usd is not None:
            shared[SHADOW_WINDOW] = [("shadow", "")]
        spent: dict[Account, int] = {}
        read: set[str] = set()
        wanted: set[WindowName] = {*_windows(limits.values()), *shared}
        in_use = [window_of_id(name) for name in self.admission.treasury.windows_in_use()]
        for window in sorted(wanted):
            scopes = shared.get(window, [])
            begun = [began_us for kind, began_us in in_use if kind == window]
            for at_us in (self.now_us() - EDGE_US, self.now_us() + EDGE_US, *begun):
                name = window_id(window, at_us)
                if name not in read:
                    read.add(name)
                    spent.update((account, 0) for account in _accounts(limits, window, name))
                    spent.update((budget_account(whose, name, scope=scope), 0) for scope, whose in scopes)
                    by: tuple[Dimension, ...] = (*KEYS_ALONE, "team", "project") if scopes else KEYS_ALONE
                    for row in await self.store.sums(of_window(window, at_us, by)):
                        self._add(spent, limits, window, name, row)
                        _add_to_shared(spent, scopes, name, row)
        return spent

    def _add(
        self, spent: dict[Account, int], limits: dict[str, Limits], window: WindowName, name: str, row: Sums
    ) -> None:
        key = row.group["key"] or ""
        own = limits.get(key)
        if own is None:
            return
        if own.budget_usd is not None and own.budget_window == window:
            spent[budget_account(key, name)] += counted_pico_usd(row)
        for tier, quota in own.tier_quotas.items():
            if quota.window == window and row.group["model"] in self.admission.shared.tiers.get(tier, ()):
                spent[quota_account(key, tier, name)] += row.requests


def _add_to_shared(spent: dict[Account, int], scopes: Iterable[Shared], name: str, row: Sums) -> None:
    """Adds the row to the budgets that cover it: of teams, projects, everything or shadow calls."""
    for scope, whose in scopes:
        is_covered = row.group["key"] in OFF_PATH if scope == "shadow" else scope == "all" or row.group[scope] == whose
        if is_covered:
            spent[budget_account(whose, name, scope=scope)] += counted_pico_usd(row)


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


def counted_pico_usd(row: Sums) -> int:
    """What budgets count of a group that has `status` among its dimensions: for a request whose process died, its
    maximum cost. All statements about budgets use this; reports show what is booked."""
    if row.group.get("status") == Status.orphaned.value:
        return row.upper_pico_usd
    return row.corrected_cost_pico_usd


def of_window(window: WindowName, at_us: int, by: tuple[Dimension, ...]) -> SumsQuery:
    """The whole window containing this moment, including entries booked while a clock was ahead."""
    start, end = microseconds(window_start(window, at_us)), window_end(window, at_us)
    return SumsQuery(start, FOR_EVER_US if end is None else microseconds(end), by, money_alone=True)
