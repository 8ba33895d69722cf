"""Replays logged traffic under a rules document: reads entries in time order and decides them off the event loop.

Pages are read while earlier ones are decided; only a few are in memory at a time, however long the period.
"""

import asyncio
import queue
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Protocol

from gateway.economics.replay.log import LoggedRequest, logged_request_of
from gateway.economics.replay.outcome import Lengths, ShadowPair, learn_lengths
from gateway.economics.replay.replay import Scenario, decide_with, replay
from gateway.economics.replay.result import ReplayDiff, Side
from gateway.economics.replay.snapshot import outcomes_with, price_with
from gateway.instants import HOUR_US, moment_of
from gateway.ledger.entry import OFF_PATH, Entry
from gateway.money import format_usd, show_usd, usd
from gateway.reports.replay_views import ReplayMove, ReplayResult
from gateway.routing.rules import RulesDocument
from gateway.routing.snapshot import Snapshot

WEEK_US = 7 * 24 * HOUR_US
COMPARED_US = 90 * 24 * HOUR_US
"""Window of shadow calls, up to the end of the period: a model's verbosity changes slowly."""
MOST_REQUESTS = 200_000
"""Limit for someone waiting at an editor; the rest is cut off, and the answer says so. The CLI has no limit."""
PAGES_AHEAD = 8
BY_THRESHOLD = (
    "A quality_share is replayed with the threshold that was logged for the very same rule. Without one, it is kept "
    "for each prompt on its own, which costs more than over all traffic."
)
LOOK_EVERY_SECONDS = 0.2
Progress = Callable[[int], None]
"""Called with the number of requests done, from another thread."""


class EntryLog(Protocol):
    """The shipped ledger."""

    def entries(self, since_us: int, until_us: int) -> AsyncIterator[list[Entry]]:
        """Pages of a period, in time order."""
        ...


class ShadowLog(Protocol):
    """Requests that were sent to two models."""

    async def shadow_pairs(self, since_us: int, until_us: int) -> Sequence[ShadowPair]:
        """One row per pair of models for calls in the period, without answers that were cut short or not counted."""
        ...


class ReplayService:
    """Answers `/rules/replay`. `snapshot_of` combines a document with the deployment's models and prices."""

    def __init__(
        self,
        log: EntryLog,
        shadows: ShadowLog,
        snapshot_of: Callable[[RulesDocument], Snapshot],
        now_us: Callable[[], int],
        *,
        most_requests: int | None = MOST_REQUESTS,
        progress: Progress | None = None,
    ) -> None:
        """`most_requests` None: no limit."""
        self._log = log
        self._shadows = shadows
        self._snapshot_of = snapshot_of
        self._now_us = now_us
        self._most_requests = most_requests
        self._progress = progress

    async def __call__(self, document: RulesDocument, since_us: int | None, until_us: int | None) -> ReplayResult:
        """None, None: the last seven days."""
        until = until_us if until_us is not None else self._now_us()
        since = since_us if since_us is not None else until - WEEK_US
        lengths = learn_lengths(await self._shadows.shadow_pairs(until - COMPARED_US, until))
        scenario, feed = scenario_of(self._snapshot_of(document), lengths), _Feed()
        replaying = asyncio.create_task(asyncio.to_thread(replay, feed, scenario, progress=self._progress))
        try:
            is_cut = await self._fill(feed, since, until, replaying)
        finally:
            await feed.put([], unless=replaying)  # end marker, sent even if reading the log failed
        result = _result(await replaying, since, until, is_cut=is_cut)
        if result.moved_requests:
            result.notes.append(_about(lengths))
        if any(rule.target_name for rule in document.rules):
            result.notes.append(BY_THRESHOLD)
        return result

    async def _fill(self, feed: "_Feed", since: int, until: int, replaying: asyncio.Task[ReplayDiff]) -> bool:
        """True if there was more than may be replayed."""
        left = self._most_requests
        async for page in self._log.entries(since, until):
            # The gateway's own requests were not decided by rules, so they are not decided again.
            logged = [logged_request_of(entry) for entry in page if entry.intent.operation not in OFF_PATH]
            if not logged:
                continue
            if left is not None and len(logged) > left:
                await feed.put(logged[:left], unless=replaying)
                return True
            left = None if left is None else left - len(logged)
            await feed.put(logged, unless=replaying)
            if replaying.done():  # it failed, and `await` says why
                return False
        return False


class _Feed:
    """Pages from the event loop to the thread that replays them; an empty page is the end."""

    def __init__(self) -> None:
        self._pages: queue.Queue[list[LoggedRequest]] = queue.Queue(PAGES_AHEAD)

    async def put(self, page: list[LoggedRequest], *, unless: asyncio.Task[ReplayDiff]) -> None:
        """Wait for room, unless the reader has ended."""
        while not unless.done():
            if not self._pages.full():  # this is the only writer
                self._pages.put_nowait(page)
                return
            await asyncio.wait([unless], timeout=LOOK_EVERY_SECONDS)

    def __iter__(self) -> Iterator[LoggedRequest]:
        while page := self._pages.get():
            yield from page


def scenario_of(snapshot: Snapshot, lengths: Lengths | None = None) -> Scenario:
    """The router's own decision under `snapshot`, which also prices both sides."""
    pricing = price_with(snapshot.candidates)
    outcomes = outcomes_with(snapshot.candidates.values(), lengths.ratios if lengths is not None else None)
    return Scenario(decide=decide_with(snapshot), price=pricing, logged_price=pricing, outcomes=outcomes)


def _about(lengths: Lengths | None) -> str:
    """States what is assumed for the lengths of answers that were never given."""
    if lengths is None:
        return "Another model's answers are assumed to be as long as the logged ones; shadow_calls would measure it."
    said = ", ".join(f"{model} {output:.2f}" for model, (_, output) in sorted(lengths.ratios.items()))
    return (
        f"Lengths of answers relative to {lengths.reference}: {said}, from {lengths.requests:,} requests that two "
        "models answered. Any other model's answers are assumed to be as long as the logged ones."
    )


def _result(diff: ReplayDiff, since_us: int, until_us: int, *, is_cut: bool) -> ReplayResult:
    before, after = diff.logged, diff.replayed
    notes = ["Costs of GPU time are shares of the hour; its rent does not change with the rules."]
    if diff.refused:
        notes.append(f"The refused requests ({diff.refused:,}) are in no figure, on either side.")
    if diff.refused_down:
        notes.append(
            f"{diff.refused_down:,} of the refused are refused only because their models were down, or not answering, "
            "when they were logged."
        )
    if diff.failed:
        notes.append(
            f"{diff.failed:,} requests got no answer then and would be sent to other models now: they count as if "
            "those failed too."
        )
    if diff.cached_pico_usd > 0:
        notes.append(
            f"{diff.cached_tokens:,} input tokens of the requests that would move were read from a prompt cache and "
            "count as fresh ones. Cached where they would go, they would cost "
            f"{show_usd(usd(diff.cached_pico_usd))} less."
        )
    if after.unpriced:
        notes.append(f"Requests without a known price, before or after, are in no cost ({after.unpriced:,}).")
    if diff.unverified:
        notes.append(
            f"{diff.unverified:,} requests would go through a cascade, but their answers were never verified: they "
            "count as if they passed. Each one that failed would also cost the stronger model's answer."
        )
    if is_cut:
        notes.append(f"Only the first {diff.requests:,} requests of the period; choose a shorter one to see the rest.")
    if after.time_to_first_token_p50_seconds == 0:
        notes.append("The time to first token is not known for the models that requests would move to.")
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
                unpriced_requests=move.unpriced,
                cost_change_usd=format_usd(move.cost_change_pico_usd),
            )
            for move in diff.moves
        ],
        is_sampled=is_cut,
        notes=notes,
    )


def _first_token(side: Side) -> float | None:
    return side.time_to_first_token_p50_seconds or None
