"""Whether a correction may be promoted: what it changes for judged requests, and whether that surely helps. Pure."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from classifier.online.correction import NONE, Correction
from classifier.online.off_policy import Estimate, Logged, doubly_robust
from gateway.errors import BreakevenError
from gateway.learning.correction import Judged, routed
from gateway.learning.voices import Stratum, strata
from gateway.ledger.entry import Entry
from gateway.routing.decide import decide
from gateway.routing.snapshot import Snapshot, request_facts_of
from gateway.stores import SHADOW

LEAST_REQUESTS = 100
LEAST_TRIED = 3
"""Moved requests that were already answered by the model they would move to. With fewer, chance may have left out
counter-examples, and the estimate merely repeats the predictions."""
TOLERANCE = 0.01


class Pick(NamedTuple):
    """The model to which a policy sends a request, and the expected cost."""

    model: str
    cost_pico_usd: int


@dataclass(frozen=True, slots=True)
class Gain:
    """Difference in mean score, with its 95 % interval."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """Both policies on the same judged requests: mean score with its interval, and mean expected cost.

    `gain` is the candidate's mean score minus the incumbent's, estimated from the `moved` requests alone, which the two
    send to different models. `tried` of them were answered by the candidate's choice.
    """

    requests: int
    moved: int
    tried: int
    candidate: Estimate
    incumbent: Estimate
    gain: Gain
    candidate_cost_pico_usd: float
    incumbent_cost_pico_usd: float

    @property
    def objection(self) -> str | None:
        """Why the candidate may not be promoted. None if it is surely better, or as good for less."""
        if self.requests < LEAST_REQUESTS:
            return (
                f"only {self.requests} judged requests test it, {LEAST_REQUESTS} are needed: gather feedback, and let "
                "the rules `explore`"
            )
        if not self.moved:
            return f"it would send none of {self.requests:,} judged requests elsewhere"
        if self.tried < LEAST_TRIED:
            return (
                f"{self.tried} of the {self.moved:,} judged requests that it would send elsewhere were answered there, "
                f"{LEAST_TRIED} are needed: let the rules `explore`, and gather feedback"
            )
        if self.gain.low > 0:
            return None
        is_cheaper = self.candidate_cost_pico_usd < self.incumbent_cost_pico_usd
        if is_cheaper and self.gain.low >= -TOLERANCE:
            return None
        return (
            f"its answers are not shown to be better (scores of {self.candidate.mean:.3f} against "
            f"{self.incumbent.mean:.3f}, a gain between {self.gain.low:+.3f} and {self.gain.high:+.3f}), nor as good "
            "for less"
        )


def judge(
    judged: Sequence[Judged],
    snapshot: Snapshot,
    candidate: Correction,
    incumbent: Correction,
    correction_of: Callable[[str], Correction] = lambda _: NONE,
) -> Verdict:
    """Re-decide every judged request under the rules in force with each correction. The estimate is doubly robust, and
    no key's judgements outweigh the others'. Shadow answers are left out: requests not sampled for one have no
    counterpart.

    Raises ValueError for fewer than two usable requests.
    """
    log: list[Logged] = []
    picks: list[tuple[Pick, Pick]] = []
    voters: list[str | None] = []
    for one in routed(one for one in judged if not one.is_implied and one.entry.intent.operation != SHADOW):
        new, old = (_pick(one.entry, snapshot, side, correction_of) for side in (candidate, incumbent))
        if new is None or old is None:
            continue
        picks.append((new, old))
        voters.append(one.voter)
        decision = one.entry.intent.decision
        log.append(Logged(one.entry.model, decision.propensity, one.score, decision.facts.quality))
    parts = strata(voters)
    new_costs, old_costs = ([pair[side].cost_pico_usd for pair in picks] for side in (0, 1))
    models = [(new.model, old.model) for new, old in picks]
    moved = [(one.model, new) for one, (new, old) in zip(log, models, strict=True) if new != old]
    gain = _estimate(log, [{} if new == old else {new: 1.0, old: -1.0} for new, old in models], parts)
    return Verdict(
        len(log),
        len(moved),
        sum(asked == new for asked, new in moved),
        _estimate(log, [{new: 1.0} for new, _ in models], parts),
        _estimate(log, [{old: 1.0} for _, old in models], parts),
        Gain(gain.mean, gain.low, gain.high),
        _mean(new_costs, parts),
        _mean(old_costs, parts),
    )


def _estimate(log: Sequence[Logged], chances: Sequence[Mapping[str, float]], parts: Sequence[Stratum]) -> Estimate:
    """What sending each request to models with these probabilities would have scored: estimates per stratum, weighted
    by share. Negative probabilities are subtracted."""
    of = {id(entry): found for entry, found in zip(log, chances, strict=True)}
    estimates = [doubly_robust([log[at] for at in part.places], lambda one: of[id(one)]) for part in parts]
    shared = list(zip(parts, estimates, strict=True))
    mean = sum(part.share * found.mean for part, found in shared)
    center = sum(part.share * (found.high + found.low) / 2 for part, found in shared)
    half = math.hypot(*(part.share * (found.high - found.low) / 2 for part, found in shared))
    speaking = [(part.share, found.effective) for part, found in shared if found.effective]
    squares = sum(share**2 / effective for share, effective in speaking)
    effective = sum(share for share, _ in speaking) ** 2 / squares if squares else 0.0
    return Estimate(mean, center - half, center + half, effective)


def _mean(costs: Sequence[int], parts: Sequence[Stratum]) -> float:
    return sum(part.share * sum(costs[at] for at in part.places) / len(part.places) for part in parts)


def _pick(
    entry: Entry, snapshot: Snapshot, correction: Correction, correction_of: Callable[[str], Correction]
) -> Pick | None:
    """The choice without exploration; None if the request cannot be decided."""
    request = request_facts_of(entry.intent)
    facts, difficulty = request.facts, request.facts.difficulty
    assert difficulty is not None
    undo = correction_of(entry.intent.decision.classifier_version).undo
    quality = {
        name: correction.apply(name, undo(name, value, difficulty), difficulty) for name, value in facts.quality.items()
    }
    try:
        corrected = msgspec.structs.replace(facts, quality=quality, draw=1.0)
        decision = decide(msgspec.structs.replace(request, facts=corrected), snapshot).decision
    except BreakevenError:
        return None  # its models are gone, so today's rules say nothing about it
    if decision.model not in facts.quality:
        return None
    return Pick(decision.model, decision.expected_cost_pico_usd or 0)
