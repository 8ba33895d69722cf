"""A share of the best quality, kept over a rule's traffic: how much a single prompt may lose for it. Pure.

`quality_share: 0.95` asks that the mean predicted quality of the rule's answers is 95 % of what the best candidate of
every prompt would give. Prompt by prompt that would pay for quality where little is to be had; over traffic one
threshold is enough: a model may answer when its predicted quality is at most so far below the best one's, and of those
that may the rule's order decides. The threshold is the largest that kept the share on recent traffic, and on the newest
of it as well: what traffic that is no more allowed to lose is lost on every prompt when others come.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from gateway.routing.decide import options, rule_of
from gateway.routing.preference import ROUNDING, Ranked
from gateway.routing.rules import Rule
from gateway.routing.snapshot import RequestFacts, Snapshot

LEAST_REQUESTS = 200
"""Fewer say too little: until then the share is kept on every prompt."""
NEWEST_REQUESTS = 400
"""So many tell that traffic has changed, and hardly more than all of it by chance alone."""
DECIMALS = 4


def allowed_loss(traffic: Iterable[RequestFacts], rule: Rule, snapshot: Snapshot) -> float | None:
    """The threshold for `rule` that its traffic, newest first, asks for; None where too little of it is known.

    Other rules' requests are passed over. What is explored costs quality beyond the share and is not counted.
    """
    share = rule.choose.quality_share
    assert share is not None
    losses: list[tuple[float, list[tuple[float, float]]]] = []
    for request in traffic:
        if rule_of(request, snapshot.rules) is not rule:
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
