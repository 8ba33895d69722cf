"""Looks at what budgets have spent and tells what is new, once for all workers and replicas. Knows protocols only."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from gateway.errors import NoticeNotTaken
from gateway.limits.spending import counted_pico_usd, of_window
from gateway.limits.values import Limits, WindowName, window_id
from gateway.notices.notice import BudgetSpent, Document, Mark, document, due
from gateway.stores import BudgetStore, KeyStore
from gateway.sums import Dimension, ReportStore, Sums

MONTH: WindowName = "month"
Outcome = Literal["sent", "failed"]


class NoticeStore(Protocol):
    """Who tells of what, and what is told: shared by all that share the database.

    A claim that is neither told nor given back ends by itself after ABANDONED_US: who held it is gone.
    """

    async def told(self, windows: Collection[str]) -> Sequence[Mark]:
        """What was sent, in these windows."""
        ...

    async def claim(self, mark: Mark, at_us: int) -> bool:
        """Whether it is ours to tell now: False where it is told, or somebody else is at it."""
        ...

    async def give_back(self, mark: Mark, claimed_at_us: int) -> None: ...

    async def set_told(self, mark: Mark, at_us: int) -> None: ...


ABANDONED_US = 300_000_000
"""Several times what the longest sending takes."""


@dataclass(frozen=True, slots=True)
class BudgetNotices:
    """`look` once in a while. At least once rather than never: who dies between the sending and the note of it leaves
    a notice that is sent a second time."""

    budgets: BudgetStore
    keys: KeyStore
    limits: Callable[[], Mapping[str, Limits]]
    reports: ReportStore
    store: NoticeStore
    post: Callable[[Document], Awaitable[None]]
    count: Callable[[Outcome], None]
    shares_per_mille: tuple[int, ...]
    page: str | None
    now_us: Callable[[], int]

    async def look(self) -> None:
        """Raises NoticeNotTaken at the first that is not taken; it and the rest are tried again at the next look."""
        now_us = self.now_us()
        found = [*await self._shared(now_us), *await self._of_keys(now_us)]
        if not found:
            return
        told = await self.store.told(sorted({one.window_id for one in found}))
        for one in found:
            mark = due(one, self.shares_per_mille, told)
            if mark is not None and await self.store.claim(mark, now_us):
                await self._tell(one, mark, now_us)

    async def _tell(self, spent: BudgetSpent, mark: Mark, claimed_at_us: int) -> None:
        try:
            await self.post(document(spent, mark, page=self.page))
        except NoticeNotTaken:
            self.count("failed")
            await self.store.give_back(mark, claimed_at_us)
            raise
        self.count("sent")
        await self.store.set_told(mark, self.now_us())

    async def _shared(self, now_us: int) -> list[BudgetSpent]:
        """Budgets of teams, projects and everything, which are monthly."""
        budgets = await self.budgets.budgets()
        rows = await self._rows(MONTH, now_us, ("team", "project", "status")) if budgets else ()
        return [
            BudgetSpent(
                scope=one.scope,
                name=one.name,
                shown=one.name,
                window_id=window_id(MONTH, now_us),
                amount_pico_usd=one.month_pico_usd,
                spent_pico_usd=sum(
                    counted_pico_usd(row) for row in rows if one.scope == "all" or row.group[one.scope] == one.name
                ),
                stops=one.stops,
            )
            for one in budgets
        ]

    async def _of_keys(self, now_us: int) -> list[BudgetSpent]:
        limits = {key: one for key, one in self.limits().items() if one.budget_pico_usd}
        if not limits:
            return []
        names = {one.record.id: one.record.name for one in await self.keys.list() if one.record.revoked_at_us is None}
        spent: dict[tuple[WindowName, str], int] = {}
        windows: set[WindowName] = {one.budget_window for key, one in limits.items() if key in names}
        for window in windows:
            for row in await self._rows(window, now_us, ("key", "status")):
                whose = (window, row.group["key"] or "")
                spent[whose] = spent.get(whose, 0) + counted_pico_usd(row)
        return [
            BudgetSpent(
                scope="key",
                name=key,
                shown=names[key],
                window_id=window_id(one.budget_window, now_us),
                amount_pico_usd=one.budget_pico_usd or 0,
                spent_pico_usd=spent.get((one.budget_window, key), 0),
                stops=True,
            )
            for key, one in limits.items()
            if key in names
        ]

    async def _rows(self, window: WindowName, now_us: int, by: tuple[Dimension, ...]) -> Sequence[Sums]:
        return await self.reports.sums(of_window(window, now_us, by))
