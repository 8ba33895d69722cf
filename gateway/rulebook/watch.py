"""Keeps a worker's RuleState true to the books: today's spending on exploration, thresholds of quality targets.

Decides nothing: what it finds out are facts of the decisions that follow. Off the path of every request.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from gateway.instants import DAY_US, moment_of
from gateway.ledger.entry import Entry, Status
from gateway.routing.quality_target import allowed_loss
from gateway.routing.rules import Rule
from gateway.routing.snapshot import Snapshot, request_facts_of
from gateway.rulebook.state import ExplorationSpend, RuleState, extra_cost_pico_usd
from gateway.stores import EntryOrder, EntryStore

log = logging.getLogger(__name__)
RECENT_REQUESTS = 2000
"""So many of a rule's newest requests stand for its traffic."""
PAGE = 500


@dataclass(frozen=True, slots=True)
class RuleEntries:
    """An EntryWanted: the requests that one rule decided, newest first."""

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
    """`snapshot` is the one in force now."""

    def __init__(
        self,
        entries: EntryStore,
        state: RuleState,
        spend: ExplorationSpend,
        snapshot: Callable[[], Snapshot],
        now_us: Callable[[], int],
    ) -> None:
        self._entries = entries
        self._state = state
        self._spend = spend
        self._snapshot = snapshot
        self._now_us = now_us

    async def start(self) -> None:
        """What capped rules spent of today before this process began, and thresholds."""
        capped = [rule for rule in self._snapshot().rules if rule.choose.explore_usd_per_day is not None]
        self._spend.seed({rule.name: await self._spent_today(rule) for rule in capped})
        await self.look()

    async def look(self) -> None:
        """A new day, and every threshold again from the newest traffic."""
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

    async def _calibrate(self, rule: Rule, snapshot: Snapshot) -> float | None:
        """Predictions of another classifier are not comparable, so its traffic does not count."""
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
