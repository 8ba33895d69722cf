"""Keeps a worker's RuleState current from the ledger: today's exploration spending, thresholds of quality targets.

Decides nothing: its findings are facts of later decisions. Off the request path.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace

from gateway.instants import DAY_US
from gateway.ledger.entry import Entry
from gateway.limits.counters import Counters, CountersDown
from gateway.routing.quality_target import allowed_loss
from gateway.routing.rules import Rule
from gateway.routing.snapshot import Snapshot, request_facts_of
from gateway.rulebook.state import ExplorationSpend, RuleState
from gateway.stores import EntryWanted, RuleBooks

log = logging.getLogger(__name__)
RECENT_REQUESTS = 2000
"""The number of a rule's newest requests that represent its traffic."""
PAGE = 500


class RuleWatch:
    """`snapshot` returns the one in force; `counters` lead to the other workers."""

    def __init__(
        self,
        entries: RuleBooks,
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
        self._counters = counters
        self._started_us = now_us()
        self._earlier: dict[str, tuple[int, int]] = {}

    async def start(self) -> None:
        """Reads the thresholds. Capped rules explore nothing until `share` has found what they spent today."""
        self._spend.not_told(rule.name for rule in self._capped())
        await self.look()

    async def share(self) -> None:
        """Exchanges with other workers what exploration under a cap has cost today. Call it about twice a second. First
        reads what each rule spent before this process started, so that no start waits for it; nothing is explored under
        a cap meanwhile."""
        capped = self._capped()
        if not capped:
            return
        unread = [rule for rule in capped if rule.name not in self._earlier]
        if unread:
            self._spend.not_told(rule.name for rule in capped)
        for rule in unread:
            self._earlier[rule.name] = await self._spent_earlier(rule)
        day, spent, held = self._spend.own()
        try:
            others_hold = _beyond(held, await self._counters.share(f"exploring:{day}", held))
            others_spent = _beyond(spent, await self._counters.share(f"explored:{day}", spent))
        except CountersDown:
            self._spend.not_told(rule.name for rule in capped)
        else:
            self._spend.told(day, {rule: earlier for rule, (of, earlier) in self._earlier.items() if of == day}, {})
            self._spend.told(day, others_spent, others_hold)

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
            for entry in await self._recent(rule)
            if entry.intent.decision.classifier_version == snapshot.classifier_version
        ]
        return await asyncio.to_thread(allowed_loss, recent, rule, snapshot)

    async def _recent(self, rule: Rule) -> list[Entry]:
        """The rule's newest requests, at most RECENT_REQUESTS, a page at a time so that others proceed in between."""
        found, wanted = list[Entry](), EntryWanted(rule=rule.name, limit=PAGE)
        while len(found) < RECENT_REQUESTS:
            page = await self._entries.find(wanted)
            found += page
            if len(page) < wanted.limit:
                break
            wanted = replace(wanted, before=page[-1].intent.request_id)
        return found

    async def _spent_earlier(self, rule: Rule) -> tuple[int, int]:
        """The day of this process's start, and what the rule had spent of it by then. What this process spends is not
        read, but counted as it settles."""
        day = self._started_us // DAY_US
        parts = self._entries.explored(rule.name, day * DAY_US, self._started_us)
        return day, sum([one.extra_pico_usd async for some in parts for one in some])


def _beyond(own: Mapping[str, int], everybodys: Mapping[str, int]) -> Mapping[str, int]:
    return {rule: amount - own.get(rule, 0) for rule, amount in everybodys.items()}
