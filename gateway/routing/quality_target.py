"""A share of the best quality, kept over a rule's traffic: how much a single prompt may lose for it. Pure.

`quality_share: 0.95` asks that the mean predicted quality of the rule's answers is 95 % of what the best candidate of
every prompt would give. Prompt by prompt that would pay for quality where little is to be had; over traffic one
threshold is enough: a model may answer when its predicted quality is at most so far below the best one's, and of those
that may the rule's order decides. The threshold is the largest that kept the share on recent traffic.
"""

from collections.abc import Iterable, Iterator
from itertools import groupby

from gateway.routing.decide import ROUNDING, Ranked, options, rule_of
from gateway.routing.rules import Rule
from gateway.routing.snapshot import RequestFacts, Snapshot

LEAST_REQUESTS = 200
"""Fewer say too little: until then the share is kept on every prompt."""
DECIMALS = 4


def allowed_loss(traffic: Iterable[RequestFacts], rule: Rule, snapshot: Snapshot) -> float | None:
    """The threshold for `rule` that its traffic asks for; None where too little of it is known.

    Other rules' requests are passed over. What is explored costs quality beyond the share and is not counted.
    """
    share = rule.choose.quality_share
    assert share is not None
    seen, best_sum, steps = 0, 0.0, list[tuple[float, float]]()
    for request in traffic:
        if rule_of(request, snapshot.rules) is not rule:
            continue
        best, ordered = options(request, rule, snapshot)
        if best <= 0.0:
            continue
        seen += 1
        best_sum += best
        steps += _steps(best, ordered)
    if seen < LEAST_REQUESTS:
        return None
    return _largest(steps, (1.0 - share) * best_sum)


def _steps(best: float, ordered: list[Ranked]) -> Iterator[tuple[float, float]]:
    """(threshold from which on another candidate is chosen, how much more quality is lost then) of one request."""
    place = len(ordered)
    lost = 0.0
    known = [(best - one.quality, rank) for rank, one in enumerate(ordered) if one.quality is not None]
    for gap, rank in sorted(known):
        if rank < place:
            yield gap, gap - lost
            place, lost = rank, gap


def _largest(steps: list[tuple[float, float]], may_lose: float) -> float:
    """The largest threshold at which no more than that is lost in all."""
    threshold = 0.0
    by_gap = sorted((round(gap, DECIMALS), more) for gap, more in steps)
    for gap, same in groupby(by_gap, key=lambda step: step[0]):
        may_lose -= sum(more for _, more in same)
        if may_lose < -ROUNDING:
            break
        threshold = gap
    return threshold
