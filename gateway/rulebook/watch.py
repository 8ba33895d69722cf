"""Keeps a worker's RuleState current from the ledger: today's exploration spending, thresholds of quality targets.

Decides nothing: its findings are facts of later decisions. Off the request path.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from gateway.instants import DAY_US, moment_of
from gateway.ledger.entry import Entry, Status
from gateway.limits.counters import Counters, CountersDown
from gateway.routing.quality_target import allowed_loss
from gateway.routing.rules import Rule
from gateway.routing.snapshot import Snapshot, request_facts_of
from gateway.rulebook.state import ExplorationSpend, RuleState, extra_cost_pico_usd
from gateway.stores import EntryOrder, EntryStore

log = logging.getLogger(__name__)
RECENT_REQUESTS = 2000
"""The number of a rule's newest requests that represent its traffic."""
PAGE = 500


@dataclass(frozen=True, slots=True)
class RuleEntries:
    """An EntryWanted: the requests decided by one rule, newest first."""

    rule: str | None
    since: datetime | None = None
    before: str | None = None
    limit: int = PAGE
    until: datetime | None = None
    key_id: str | None = None
    team: str | None = None
    project: str | None = None
    model: str | None = None
    backend: str | None = None
    tag: str | None = None
    batch_id: str | None = None
    status: Status | None = None
    order: EntryOrder = "newest"


class RuleWatch:
    """`snapshot` returns the one in force; `counters` lead to the other workers."""

    def __init__(
        self,
        entries: EntryStore,
        state: RuleState,
        spend: ExplorationSpend,
        snapshot: Callable[[], Snapshot],
        now_us: Callable[[], int],
        counters: Counters,
    ) -> None:
        self._entries = entries
        self._state = state
        self._spend = spend
        self._snapshot = snapshot
        self._now_us = now_us
        self._counters = counters

    async def start(self) -> None:
        """Reads what capped rules spent today before this process started, and the thresholds."""
        day, _ = self._spend.own()
        self._spend.told(day, {rule.name: await self._spent_today(rule) for rule in self._capped()})
        await self.share()
        await self.look()

    async def share(self) -> None:
        """Exchanges with other workers what exploration under a cap has cost today. Call it about twice a second."""
        capped = self._capped()
        if not capped:
            return
        day, own = self._spend.own()
        try:
            everybodys = await self._counters.share(f"explored:{day}", own)
        except CountersDown:
            self._spend.not_told(rule.name for rule in capped)
        else:
            self._spend.told(day, {rule: spent - own.get(rule, 0) for rule, spent in everybodys.items()})

    async def look(self) -> None:
        """Checks for a new day, and recomputes every threshold from the newest traffic."""
        self._spend.turn()
        snapshot = self._snapshot()
        found: dict[str, float] = {}
        for rule in snapshot.rules:
            if rule.target_name is not None:
                loss = await self._calibrate(rule, snapshot)
                if loss is not None:
                    found[rule.target_name] = loss
        if found != self._state.allowed_loss:
            log.info("thresholds of quality targets: %s", found)
            self._state.allowed_loss = found

    def _capped(self) -> list[Rule]:
        return [rule for rule in self._snapshot().rules if rule.choose.explore_usd_per_day is not None]

    async def _calibrate(self, rule: Rule, snapshot: Snapshot) -> float | None:
        """Predictions of different classifiers are not comparable, so only traffic of the current one counts."""
        recent = [
            request_facts_of(entry.intent)
            async for page in self._pages(RuleEntries(rule.name), RECENT_REQUESTS)
            for entry in page
            if entry.intent.decision.classifier_version == snapshot.classifier_version
        ]
        return await asyncio.to_thread(allowed_loss, recent, rule, snapshot)

    async def _spent_today(self, rule: Rule) -> int:
        midnight = moment_of(self._now_us() // DAY_US * DAY_US)
        return sum(
            [
                extra_cost_pico_usd(entry)
                async for page in self._pages(RuleEntries(rule.name, since=midnight))
                for entry in page
                if entry.intent.decision.exploration_pico_usd
            ]
        )

    async def _pages(self, wanted: RuleEntries, most: int | None = None) -> AsyncIterator[Sequence[Entry]]:
        seen = 0
        while most is None or seen < most:
            page = await self._entries.find(wanted)
            yield page
            seen += len(page)
            if len(page) < wanted.limit:
                return
            wanted = replace(wanted, before=page[-1].intent.request_id)
