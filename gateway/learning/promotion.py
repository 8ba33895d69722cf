"""Whether a correction may be promoted: what it changes for judged requests, and whether that surely helps. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import msgspec

from classifier.online.correction import NONE, Correction
from classifier.online.off_policy import Estimate, Logged, doubly_robust, mean_with_error
from gateway.errors import BreakevenError
from gateway.learning.correction import Judged, routed
from gateway.learning.voices import factors
from gateway.ledger.entry import SHADOW, Entry
from gateway.routing.decide import decide
from gateway.routing.rules import Choose
from gateway.routing.snapshot import Snapshot, request_facts_of

LEAST_REQUESTS = 100
LEAST_TRIED = 3
"""Moved requests that were already answered by the model they would move to. With fewer, chance may have left out
counter-examples, and the estimate merely repeats the predictions."""
TOLERANCE = 0.01
ENOUGH = "(min_quality)"
"""Stands among a request's models for one whose every answer scores just what the rule asks for."""


class Pick(NamedTuple):
    """The model to which a policy sends a request, by which rule, and the expected cost."""

    model: str
    rule: str
    cost_pico_usd: int


class Case(NamedTuple):
    """One judged request, with the candidate's pick and the incumbent's."""

    logged: Logged
    new: Pick
    old: Pick
    voter: str | None

    @property
    def is_moved(self) -> bool:
        return self.new.model != self.old.model

    @property
    def saved_pico_usd(self) -> int:
        return self.old.cost_pico_usd - self.new.cost_pico_usd


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
    send to different models. `tried` of them were answered by the candidate's choice. `margin` is by how much the moved
    requests' answers exceed what their rules ask for, or those of the requests that are moved to a cheaper model, if
    that is less sure; None if none is. `least_saved_pico_usd` is the lower end of the saving's 95 % interval.
    """

    requests: int
    moved: int
    tried: int
    candidate: Estimate
    incumbent: Estimate
    gain: Gain
    candidate_cost_pico_usd: float
    incumbent_cost_pico_usd: float
    margin: Gain | None = None
    least_saved_pico_usd: float = 0.0

    @property
    def summary(self) -> str:
        cost = self.candidate_cost_pico_usd / self.incumbent_cost_pico_usd - 1 if self.incumbent_cost_pico_usd else 0.0
        return f"tested on {self.requests:,} judged requests: scores {self.gain.mean:+.3f}, cost {cost:+.0%}"

    @property
    def objection(self) -> str | None:
        """Why the candidate may not be promoted. None if it is surely better, or as good for less, or if it surely
        saves money and what it moves is surely as good as the rules ask for."""
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
                f"{LEAST_TRIED} are needed: let the rules `explore` (`explore_min_quality`, below a min_quality), and "
                "gather feedback"
            )
        if self.gain.low > 0:
            return None
        is_cheaper = self.candidate_cost_pico_usd < self.incumbent_cost_pico_usd
        if is_cheaper and self.gain.low >= -TOLERANCE:
            return None
        scores = (
            f"(scores of {self.candidate.mean:.3f} against {self.incumbent.mean:.3f}, a gain between "
            f"{self.gain.low:+.3f} and {self.gain.high:+.3f})"
        )
        if self.least_saved_pico_usd <= 0 or self.margin is None:
            return f"its answers are not shown to be better {scores}, nor as good for less"
        if self.margin.low < 0:
            return (
                f"its answers cost less, but are not shown to be as good {scores}, nor good enough: measured against "
                f"what their rules ask for, those that it moves score between {self.margin.low:+.3f} and "
                f"{self.margin.high:+.3f}"
            )
        return None


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
    enough_of = {rule.name: _enough(rule.choose) for rule in snapshot.rules}
    cases: list[Case] = []
    for one in routed(one for one in judged if not one.is_implied and one.entry.intent.operation != SHADOW):
        new, old = (_pick(one.entry, snapshot, side, correction_of) for side in (candidate, incumbent))
        if new is None or old is None:
            continue
        decision = one.entry.intent.decision
        predicted = dict(decision.facts.predicted_quality)
        if (enough := enough_of.get(new.rule)) is not None:
            predicted[ENOUGH] = enough
        cases.append(Case(Logged(one.entry.model, decision.propensity, one.score, predicted), new, old, one.voter))
    moved = [case for case in cases if case.is_moved]
    gain = _estimate(cases, lambda case: {case.new.model: 1.0, case.old.model: -1.0} if case.is_moved else {})
    shares = _shares(cases)
    saved, error = mean_with_error([case.saved_pico_usd for case in cases], shares)
    return Verdict(
        len(cases),
        len(moved),
        sum(case.logged.model == case.new.model for case in moved),
        _estimate(cases, lambda case: {case.new.model: 1.0}),
        _estimate(cases, lambda case: {case.old.model: 1.0}),
        Gain(gain.mean, gain.low, gain.high),
        mean_with_error([case.new.cost_pico_usd for case in cases], shares)[0],
        mean_with_error([case.old.cost_pico_usd for case in cases], shares)[0],
        _margin(moved),
        saved - error,
    )


def _margin(moved: Sequence[Case]) -> Gain | None:
    """Requests that are moved to a dearer model must not make up for the others."""
    groups = (moved, [case for case in moved if case.saved_pico_usd > 0])
    if any(len(group) < 2 for group in groups):
        return None
    found = [_estimate(group, _beyond_enough) for group in groups]
    least = min(found, key=lambda one: one.low)
    return Gain(least.mean, least.low, least.high)


def _beyond_enough(case: Case) -> Mapping[str, float]:
    return {case.new.model: 1.0, ENOUGH if ENOUGH in case.logged.predicted else case.old.model: -1.0}


def _enough(choose: Choose) -> float | None:
    """The score that suffices under a rule; None if it asks for the best, or for a share of it."""
    is_relative = choose.by == "quality" or choose.keep_quality is not None or choose.quality_share is not None
    return None if is_relative else choose.min_quality


def _estimate(cases: Sequence[Case], policy: Callable[[Case], Mapping[str, float]]) -> Estimate:
    """What sending each request to models with these probabilities would have scored. Negative ones are subtracted."""
    shares = _shares(cases)
    log = [replace(case.logged, share=share) for case, share in zip(cases, shares, strict=True)]
    of = {id(one): policy(case) for one, case in zip(log, cases, strict=True)}
    return doubly_robust(log, lambda one: of[id(one)])


def _shares(cases: Sequence[Case]) -> list[float]:
    heard = factors((case.voter, 1.0) for case in cases)
    return [heard[case.voter] for case in cases]


def _pick(
    entry: Entry, snapshot: Snapshot, correction: Correction, correction_of: Callable[[str], Correction]
) -> Pick | None:
    """The choice without exploration; None if the request cannot be decided."""
    request = request_facts_of(entry.intent)
    facts, difficulty = request.facts, request.facts.difficulty
    assert difficulty is not None
    undo = correction_of(entry.intent.decision.classifier_version).undo
    known = facts.predicted_quality
    quality = {name: correction.apply(name, undo(name, value, difficulty), difficulty) for name, value in known.items()}
    try:
        corrected = msgspec.structs.replace(facts, quality=quality, draw=1.0)
        decision = decide(msgspec.structs.replace(request, facts=corrected), snapshot).decision
    except BreakevenError:
        return None  # its models are gone, so today's rules say nothing about it
    if decision.model not in known:
        return None
    return Pick(decision.model, decision.rule, decision.expected_cost_pico_usd or 0)
