"""Checks what budgets have spent and sends new notices, once across all workers and replicas. Knows protocols only."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from gateway.errors import NoticeNotTaken
from gateway.instants import DAY_US, HOUR_US
from gateway.limits.openings import Openings, by_budget, no_openings
from gateway.limits.spending import counted_pico_usd, of_window
from gateway.limits.values import Limits, WindowName, window_id
from gateway.notices.forecast_notice import Foreseen, forecast_document, forecast_due
from gateway.notices.key_budgets import spent_by_keys
from gateway.notices.notice import BudgetSpent, Document, Mark, document, due
from gateway.stores import BudgetStore, KeyStore
from gateway.sums import Dimension, ReportStore, Sums

MONTH: WindowName = "month"
Outcome = Literal["sent", "failed"]
LOOK_US = 25_000_000
"""Between two checks. Each worker asks every half minute whether one is due."""


@dataclass(frozen=True, slots=True)
class NoticeState:
    """Progress of the notices, by the store's clock (`now_us`). `failing_since_us` is None unless a notice waits to be
    sent; `problem` is the last failure."""

    now_us: int
    looked_at_us: int | None = None
    forecast_at_us: int | None = None
    sent_at_us: int | None = None
    failing_since_us: int | None = None
    failed_at_us: int | None = None
    problem: str = ""

    @property
    def is_due(self) -> bool:
        """True also if that clock was ahead at the last check."""
        return self.looked_at_us is None or not self.looked_at_us <= self.now_us < self.looked_at_us + LOOK_US

    @property
    def is_forecast_due(self) -> bool:
        """Once per complete day, an hour after its end, when its last requests are booked."""
        return self.forecast_at_us is None or _complete_day(self.forecast_at_us) != _complete_day(self.now_us)

    @property
    def next_try_at_us(self) -> int | None:
        """When what waits is tried again."""
        if self.failing_since_us is None or self.looked_at_us is None:
            return None
        return max(self.now_us, self.looked_at_us + LOOK_US)


def _complete_day(at_us: int) -> int:
    return (at_us - HOUR_US) // DAY_US


class NoticeStore(Protocol):
    """Who sends which notice, and what was sent; shared by all users of the database.

    A claim neither completed nor returned expires after ABANDONED_US: its holder is gone.
    """

    async def told(self, windows: Collection[str]) -> Sequence[Mark]:
        """What was sent in these windows."""
        ...

    async def claim(self, mark: Mark, at_us: int) -> bool:
        """Whether this worker should send it: False if it was sent, or another worker is sending it."""
        ...

    async def give_back(self, mark: Mark, claimed_at_us: int) -> None: ...

    async def set_told(self, mark: Mark, at_us: int) -> None: ...

    async def state(self) -> NoticeState: ...

    async def take_turn(self, seen: NoticeState) -> bool:
        """Whether this worker should check now: False if another one did since `seen` was read."""
        ...

    async def note_failed(self, problem: str) -> None: ...

    async def note_done(self, *, is_sent: bool, is_foreseen: bool) -> None:
        """Everything due is sent, including forecasts if they were checked."""
        ...


ABANDONED_US = 300_000_000
"""Several times as long as sending can take."""


@dataclass(slots=True)
class BudgetNotices:
    """Call `look` now and then. Notices are sent at least once: a crash between sending and recording repeats one.
    `foresee` is set by whoever reads the reports; until then there are no forecast notices."""

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
    foresee: Callable[[], Awaitable[Sequence[Foreseen]]] | None = None
    show_failing: Callable[[bool], None] = lambda _: None
    openings: Openings = field(default=no_openings)

    async def look(self) -> None:
        """Checks if nobody did lately. Raises NoticeNotTaken at the first notice not accepted; it and the rest are
        tried again at the next check."""
        state = await self.store.state()
        self.show_failing(state.failing_since_us is not None)
        if not state.is_due or not await self.store.take_turn(state):
            return
        is_foreseen = self.foresee is not None and state.is_forecast_due
        try:
            sent = await self._tell_shares()
            if is_foreseen:
                sent += await self._tell_forecasts()
        except NoticeNotTaken as error:
            self.show_failing(True)
            await self.store.note_failed(str(error))
            raise
        if sent or is_foreseen or state.failing_since_us is not None:
            self.show_failing(False)
            await self.store.note_done(is_sent=bool(sent), is_foreseen=is_foreseen)

    async def _tell_shares(self) -> int:
        """The number sent."""
        now_us = self.now_us()
        found = [*await self._shared(now_us), *await self._of_keys(now_us)]
        told = await self._told(found)
        wanted = [(one, due(one, self.shares_per_mille, told)) for one in found]
        said = [(mark, document(one, mark, page=self.page)) for one, mark in wanted if mark is not None]
        return await self._tell_all(said, now_us)

    async def _tell_forecasts(self) -> int:
        """The number sent."""
        now_us = self.now_us()
        found = [] if self.foresee is None else await self.foresee()
        told = await self._told([one.spent for one in found])
        wanted = [(one, forecast_due(one, told)) for one in found]
        said = [(mark, forecast_document(one, page=self.page)) for one, mark in wanted if mark is not None]
        return await self._tell_all(said, now_us)

    async def _told(self, found: Sequence[BudgetSpent]) -> Sequence[Mark]:
        return await self.store.told(sorted({one.window_id for one in found})) if found else ()

    async def _tell_all(self, notices: Sequence[tuple[Mark, Document]], now_us: int) -> int:
        return sum([await self._tell(mark, notice, now_us) for mark, notice in notices])

    async def _tell(self, mark: Mark, notice: Document, now_us: int) -> bool:
        """False if another worker sends it, or has sent it."""
        if not await self.store.claim(mark, now_us):
            return False
        try:
            await self.post(notice)
        except NoticeNotTaken:
            self.count("failed")
            await self.store.give_back(mark, now_us)
            raise
        self.count("sent")
        await self.store.set_told(mark, self.now_us())
        return True

    async def _shared(self, now_us: int) -> list[BudgetSpent]:
        """Budgets of teams, projects and everything, which are monthly."""
        budgets = await self.budgets.budgets()
        month = window_id(MONTH, now_us)
        rows = await self._rows(MONTH, now_us, ("team", "project", "status")) if budgets else ()
        opened = by_budget(await self.openings([month]) if budgets else ())
        return [
            BudgetSpent(
                scope=one.scope,
                name=one.name,
                shown=one.name,
                window_id=month,
                amount_pico_usd=one.month_pico_usd,
                spent_pico_usd=sum(
                    counted_pico_usd(row) for row in rows if one.scope == "all" or row.group[one.scope] == one.name
                )
                + opened.get((one.scope, one.name, month), 0),
                stops=one.stops,
            )
            for one in budgets
        ]

    async def _of_keys(self, now_us: int) -> list[BudgetSpent]:
        return [
            BudgetSpent(
                scope="key",
                name=one.record.id,
                shown=one.record.name,
                window_id=window_id(one.window, now_us),
                amount_pico_usd=one.amount_pico_usd,
                spent_pico_usd=one.spent_pico_usd,
                stops=True,
            )
            for one in await spent_by_keys(self.keys, self.reports, self.limits(), now_us, self.openings)
            if one.amount_pico_usd
        ]

    async def _rows(self, window: WindowName, now_us: int, by: tuple[Dimension, ...]) -> Sequence[Sums]:
        return await self.reports.sums(of_window(window, now_us, by))
