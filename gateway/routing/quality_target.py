"""How much quality a single prompt may lose so that a rule's traffic as a whole keeps its share of the best. Pure.

`quality_share: 0.95` asks that the mean predicted quality of the rule's answers is 95 % of what the best candidate for
each prompt would give. Enforced per prompt, that would pay for quality where there is little to gain. Over traffic one
threshold suffices: a model may answer if its predicted quality is at most that far below the best, and the rule's
order decides among those. The threshold is the largest that kept the share on recent traffic, and also on the newest
part of it: otherwise losses allowed by older traffic would apply to every prompt after the traffic changed.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from gateway.routing.decide import options
from gateway.routing.plans import rule_of
from gateway.routing.preference import ROUNDING, Ranked
from gateway.routing.rules import Rule
from gateway.routing.snapshot import RequestFacts, Snapshot

LEAST_REQUESTS = 200
"""Fewer say too little: until then the share applies to every prompt."""
NEWEST_REQUESTS = 400
"""Enough to show that traffic has changed, with little influence of chance."""
DECIMALS = 4


def allowed_loss(traffic: Iterable[RequestFacts], rule: Rule, snapshot: Snapshot) -> float | None:
    """The threshold for `rule` from its traffic, newest first; None if too little of it is known.

    Requests of other rules are skipped. Exploration costs quality beyond the share and is not counted.
    """
    share = rule.choose.quality_share
    assert share is not None
    losses: list[tuple[float, list[tuple[float, float]]]] = []
    for request in traffic:
        if rule_of(request, snapshot) is not rule:
            continue
        best, ordered = options(request, rule, snapshot)
        if best > 0.0:
            losses.append((best, list(_steps(best, ordered))))
    if len(losses) < LEAST_REQUESTS:
        return None
    return min(_kept_on(losses, share), _kept_on(losses[:NEWEST_REQUESTS], share))


def _kept_on(losses: Sequence[tuple[float, list[tuple[float, float]]]], share: float) -> float:
    steps = [step for _, of_one in losses for step in of_one]
    return _largest(steps, (1.0 - share) * sum(best for best, _ in losses))


def _steps(best: float, ordered: list[Ranked]) -> Iterator[tuple[float, float]]:
    """For one request: (threshold from which another candidate is chosen, additional quality lost then)."""
    place = len(ordered)
    lost = 0.0
    known = [(best - one.quality, rank) for rank, one in enumerate(ordered) if one.quality is not None]
    for gap, rank in sorted(known):
        if rank < place:
            yield gap, gap - lost
            place, lost = rank, gap


def _largest(steps: list[tuple[float, float]], may_lose: float) -> float:
    """The largest threshold with a total loss of at most `may_lose`."""
    threshold = 0.0
    by_gap = sorted((round(gap, DECIMALS), more) for gap, more in steps)
    for gap, same in groupby(by_gap, key=lambda step: step[0]):
        may_lose -= sum(more for _, more in same)
        if may_lose < -ROUNDING:
            break
        threshold = gap
    return threshold
