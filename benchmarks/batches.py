"""What a day's requests that can wait cost, sent at once and sent as a batch: simulated with the real decision.

    python -m benchmarks.batches [--json] [--save] [--hours 2.0]

The engine, prices and loads are those of the worked example in docs/economics.md: in the first third of the day three
times as many requests arrive as the engine can serve, in the second twice as many, in the last half as many. At the
start there are 2,000 further requests per simulated hour at a load, which may take the whole day. Runs about a minute.
"""

import heapq
import random
from dataclasses import dataclass, field
from typing import Any

from benchmarks.overflow.example import HOSTED, LOADS, OWN, RESIDENCE_SECONDS, SLOTS, VALUE_USD, build_snapshot, request
from benchmarks.report import Bar, build_report, options, publish
from gateway.batches.pace import Pace
from gateway.batches.waiting import left_free
from gateway.routing.decide import decide
from gateway.routing.idle import awaits_a_busy_model

SEED = 4
AT_ONCE, LEAVE_FREE_SHARE = SLOTS // 2, 0.25
HOSTED_SECONDS = 6.0
LOOK_SECONDS = 0.5
LINES_AN_HOUR = 2000
"""Requests that can wait, for each hour at a load: 36 % of what the engine could serve in the quiet third beside
its callers."""


@dataclass(slots=True)
class Day:
    """One engine through three loads, and counts of what went where. Callers arrive at the same moments and stay as
    long whatever happens to the batch."""

    comings: random.Random = field(default_factory=lambda: random.Random(SEED))
    stays: random.Random = field(default_factory=lambda: random.Random(SEED + 1))
    lines: random.Random = field(default_factory=lambda: random.Random(SEED + 2))
    ends: list[float] = field(default_factory=list[float])
    came: int = 0
    hosted: int = 0
    lines_hosted: int = 0
    lines_own: int = 0
    done_at: float = 0.0

    def free(self, now: float) -> int:
        while self.ends and self.ends[0] <= now:
            heapq.heappop(self.ends)
        return SLOTS - len(self.ends)

    def ask(self, now: float, dice: random.Random) -> tuple[str, float]:
        """Where a request that arrives now goes, and when its answer is complete."""
        where = decide(request(self.free(now), 0.0), SNAPSHOT).decision.model
        lasts = dice.expovariate(1) * (RESIDENCE_SECONDS if where == OWN else HOSTED_SECONDS)
        if where == OWN:
            heapq.heappush(self.ends, now + lasts)
        return where, now + lasts


SNAPSHOT = build_snapshot()


def run(hours: float, *, lines: int, waits: bool) -> Day:
    """Callers arrive at random; the batch's lines are sent in order, AT_ONCE at a time."""
    day, length = Day(), len(LOADS) * hours * 3600
    under_way: list[float] = []
    pace, left = Pace(AT_ONCE), lines
    caller_at, line_at = day.comings.expovariate(LOADS[0]), 0.0
    while True:
        now = min(caller_at, line_at if left else length)
        if now >= length:
            return day
        if now == caller_at:
            day.came += 1
            day.hosted += day.ask(now, day.stays)[0] == HOSTED
            caller_at = now + day.comings.expovariate(LOADS[min(int(now / (hours * 3600)), len(LOADS) - 1)])
            continue
        while under_way and under_way[0] <= now:
            heapq.heappop(under_way)
        if len(under_way) >= AT_ONCE:
            line_at = under_way[0]
            continue
        hurries = pace.must_hurry(round(now * 1e6), created_at_us=0, deadline_us=round(length * 1e6), lines_left=left)
        asked = request(day.free(now), 0.0)
        if waits and not hurries and awaits_a_busy_model(asked, SNAPSHOT, _left_free):
            line_at = now + LOOK_SECONDS
            continue
        where, until = day.ask(now, day.lines)
        day.lines_hosted += where == HOSTED
        day.lines_own += where == OWN
        day.done_at = max(day.done_at, until)
        pace.note(until - now)
        heapq.heappush(under_way, until)
        left -= 1
        line_at = now


def _left_free(model: str) -> int:
    return left_free(SLOTS, LEAVE_FREE_SHARE)


def simulated(hours: float) -> dict[str, Any]:
    """The same day without the lines, with them sent at once, and with them as a batch."""
    lines = round(LINES_AN_HOUR * hours)
    without, at_once, batch = (
        run(hours, lines=0, waits=False),
        run(hours, lines=lines, waits=False),
        run(hours, lines=lines, waits=True),
    )

    def told(day: Day) -> dict[str, Any]:
        pushed_out = day.hosted - without.hosted
        return {
            "lines_at_the_hosted_model": day.lines_hosted,
            "lines_at_the_engine": day.lines_own,
            "callers_pushed_to_the_hosted_model": pushed_out,
            "extra_usd_per_1000_lines": round((day.lines_hosted + pushed_out) * VALUE_USD / lines * 1000, 4),
            "done_after_share_of_window": round(day.done_at / (len(LOADS) * hours * 3600), 3),
        }

    return {"lines": lines, "callers": without.came, "asked_at_once": told(at_once), "as_a_batch": told(batch)}


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--hours", type=float, default=2.0, help="simulated at each load")
    chosen = parser.parse_args()
    results = simulated(chosen.hours)
    before, after = (results[name]["extra_usd_per_1000_lines"] for name in ("asked_at_once", "as_a_batch"))
    bars = [
        Bar("what a thousand lines cost as a batch, of what they cost at once", round(after / before, 4), 0.1, "most"),
        Bar("the batch is done within its window", results["as_a_batch"]["done_after_share_of_window"], 1.0, "most"),
    ]
    words = f"A thousand lines: ${before} asked at once, ${after} as a batch."
    publish(build_report("batches", results, bars), chosen, words)


if __name__ == "__main__":
    main()
