"""A rules text against logged traffic: reads entries in time order and decides them again, off the event loop."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Protocol

from gateway.api.admin_rules import ReplayMove, ReplayResult
from gateway.api.admin_time import moment_of
from gateway.economics.replay import Scenario, decide_with, replay
from gateway.economics.replay_log import LoggedRequest, logged_request_of
from gateway.economics.replay_result import ReplayDiff, Side
from gateway.economics.replay_snapshot import outcomes_with, price_with
from gateway.economics.traffic import HOUR_US
from gateway.ledger.entry import Entry
from gateway.money import format_usd
from gateway.routing.rules import RulesDocument
from gateway.routing.snapshot import Snapshot

WEEK_US = 7 * 24 * HOUR_US
MOST_REQUESTS = 200_000
"""What an editor waits for; more is cut and said."""


class EntryLog(Protocol):
    """The shipped ledger."""

    def entries(self, since_us: int, until_us: int) -> AsyncIterator[list[Entry]]:
        """Pages of a period, in time order."""
        ...


class ReplayService:
    """Answers `/rules/replay`. `snapshot_of` puts a document together with the deployment's models and prices."""

    def __init__(
        self, log: EntryLog, snapshot_of: Callable[[RulesDocument], Snapshot], now_us: Callable[[], int]
    ) -> None:
        self._log = log
        self._snapshot_of = snapshot_of
        self._now_us = now_us

    async def __call__(self, document: RulesDocument, since_us: int | None, until_us: int | None) -> ReplayResult:
        """None, None: the last seven days."""
        until = until_us if until_us is not None else self._now_us()
        since = since_us if since_us is not None else until - WEEK_US
        snapshot = self._snapshot_of(document)
        logged: list[LoggedRequest] = []
        async for page in self._log.entries(since, until):
            logged += [logged_request_of(entry) for entry in page]
            if len(logged) > MOST_REQUESTS:
                break
        is_cut = len(logged) > MOST_REQUESTS
        del logged[MOST_REQUESTS:]
        diff = await asyncio.to_thread(replay, logged, scenario_of(snapshot))
        return _result(diff, since, until, is_cut=is_cut)


def scenario_of(snapshot: Snapshot) -> Scenario:
    """The router's own decision under `snapshot`; both sides are priced by it."""
    pricing = price_with(snapshot.candidates)
    outcomes = outcomes_with(snapshot.candidates.values())
    return Scenario(decide=decide_with(snapshot), price=pricing, logged_price=pricing, outcomes=outcomes)


def _result(diff: ReplayDiff, since_us: int, until_us: int, *, is_cut: bool) -> ReplayResult:
    before, after = diff.logged, diff.replayed
    notes = ["Costs of GPU time are shares of the hour; its rent does not change with the rules."]
    if after.unpriced or before.unpriced:
        notes.append(f"{before.unpriced} requests before and {after.unpriced} after have no known price.")
    if is_cut:
        notes.append(f"Only the first {MOST_REQUESTS:,} requests of the period; choose a shorter one to see the rest.")
    if after.time_to_first_token_p50_seconds == 0:
        notes.append("No time to first token is known for the models that requests would move to.")
    return ReplayResult(
        since=moment_of(since_us),
        until=moment_of(until_us),
        requests=diff.requests,
        moved_requests=diff.moved,
        refused_requests=diff.refused,
        unpriced_requests=after.unpriced,
        cost_before_usd=format_usd(before.cost_pico_usd),
        cost_after_usd=format_usd(after.cost_pico_usd),
        quality_before=before.mean_quality,
        quality_after=after.mean_quality,
        time_to_first_token_before_seconds=before.time_to_first_token_p50_seconds,
        time_to_first_token_after_seconds=_first_token(after),
        moves=[
            ReplayMove(
                from_model=move.logged_model,
                to_model=move.model,
                requests=move.requests,
                cost_change_usd=format_usd(move.cost_change_pico_usd),
            )
            for move in diff.moves
        ],
        is_sampled=is_cut,
        notes=notes,
    )


def _first_token(side: Side) -> float | None:
    return side.time_to_first_token_p50_seconds or None
