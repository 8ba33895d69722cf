"""From judged answers in the books to a correction of the classifier, and whether it may be promoted. Pure.

Everything follows from the ledger and the feedback table: the same rows give the same correction and the same verdict.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from classifier.online.correction import NONE, Correction, Outcome
from classifier.online.off_policy import Estimate, Logged, doubly_robust
from gateway.errors import BreakevenError
from gateway.learning.voices import Stratum, factors, strata
from gateway.ledger.entry import Entry
from gateway.routing.decide import DIRECT, decide
from gateway.routing.snapshot import Snapshot, request_facts_of
from gateway.stores import SHADOW, Feedback, FeedbackSource

TRUST: dict[FeedbackSource, float] = {"caller": 1.0, "judge": 0.7, "shadow": 0.5, "format": 0.3, "repeat": 0.2}
"""How much one judgement weighs: a caller knows what was wanted, a program that compares answers only guesses it."""
IMPLIED: frozenset[FeedbackSource] = frozenset({"format", "repeat"})
"""What nobody said counts only where nobody said anything, teaches, and never decides what is promoted."""
LEAST_REQUESTS = 100
LEAST_TRIED = 3
"""Moved requests that were answered as they would be then: by fewer, chance may have left out those that speak against
it, and the estimate is what was predicted and no more."""
TOLERANCE = 0.01


class Judged(NamedTuple):
    """One request with the trusted mean of its latest judgements. `is_implied`: they are no person's or judge's; with
    `of_asked` they are of the model that a cascade asked first, whoever answered in the end. `voter` is the key that
    said so, None where a program did."""

    entry: Entry
    score: float
    weight: float
    is_implied: bool = False
    of_asked: bool = False
    voter: str | None = None


class Pick(NamedTuple):
    """The model that a policy sends a request to, and what that is expected to cost."""

    model: str
    cost_pico_usd: int


@dataclass(frozen=True, slots=True)
class Gain:
    """In mean score, with its 95 % interval."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """Both policies on the same judged requests: mean score with its interval, and mean expected cost.

    `gain` is the candidate's mean score above the incumbent's, from the `moved` requests alone: those that the two send
    to different models. `tried` of them were answered by the one that the candidate sends them to.
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
        """Why the candidate may not be promoted; None when it may: surely better, or as good for less."""
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


class Word(NamedTuple):
    """What all sources together say of one request."""

    score: float
    weight: float
    is_implied: bool = False
    of_asked: bool = False
    voter: str | None = None


def by_request(feedback: Iterable[Feedback]) -> dict[str, list[Feedback]]:
    """In order of arrival."""
    found: dict[str, list[Feedback]] = {}
    for one in sorted(feedback, key=lambda one: one.number):
        found.setdefault(one.request_id, []).append(one)
    return found


def word_on(rows: Sequence[Feedback], asker: str) -> Word:
    """The last word of each source on a request of the key `asker`, weighed by how far it is trusted.

    Of several keys one is heard: that which asked, else the first that spoke, so that none unsays another's word.
    """
    callers = [one.key_id for one in rows if one.source == "caller"]
    heard = asker if asker in callers else next(iter(callers), None)
    last: dict[FeedbackSource, Feedback]
    last = {one.source: one for one in rows if one.source != "caller" or one.key_id == heard}
    said: dict[FeedbackSource, Feedback]
    said = {source: one for source, one in last.items() if source not in IMPLIED}
    if not said and "format" in last:
        return Word(last["format"].score, TRUST["format"], is_implied=True, of_asked=True, voter=asker)
    used = said or last
    weight = sum(TRUST[source] for source in used)
    mean = sum(TRUST[source] * one.score for source, one in used.items()) / weight
    return Word(mean, weight, is_implied=not said, voter=heard if said else asker)


def routed(judged: Iterable[Judged]) -> list[Judged]:
    """Those that rules decided and whose chosen model answered: of the others nothing is known about the choice. What
    passed a cascade's verification is a selection that says too much good of its model."""
    return [
        one
        for one in judged
        if one.entry.intent.decision.rule != DIRECT
        and (one.of_asked or _is_as_chosen(one.entry))
        and one.entry.intent.decision.facts.difficulty is not None
        and one.entry.intent.decision.model in one.entry.intent.decision.facts.quality
    ]


def _is_as_chosen(entry: Entry) -> bool:
    return entry.model == entry.intent.decision.model and not entry.intent.decision.escalates_to


def outcomes(judged: Iterable[Judged], correction_of: Callable[[str], Correction]) -> list[Outcome]:
    """What the frozen classifier had said of each answer; `correction_of` a decision's classifier version undoes it.

    Of each model no key's judgements outweigh the others' (see gateway.learning.voices)."""
    found: list[Outcome] = []
    usable = routed(judged)
    votes: dict[str, list[tuple[str | None, float]]] = {}
    for one in usable:
        votes.setdefault(one.entry.intent.decision.model, []).append((one.voter, one.weight))
    heard = {model: factors(said) for model, said in votes.items()}
    for one in usable:
        decision = one.entry.intent.decision
        difficulty, model = decision.facts.difficulty, decision.model
        assert difficulty is not None
        quality = correction_of(decision.classifier_version).undo(model, decision.facts.quality[model], difficulty)
        found.append(Outcome(model, quality, difficulty, one.score, one.weight * heard[model][one.voter]))
    return found


def correction_name(classifier_version: str) -> str | None:
    """The correction that a decision's classifier version names."""
    return classifier_version.partition("+")[2] or None


def judge(
    judged: Sequence[Judged],
    snapshot: Snapshot,
    candidate: Correction,
    incumbent: Correction,
    correction_of: Callable[[str], Correction] = lambda _: NONE,
) -> Verdict:
    """Re-decide every judged request under the rules in force, with each correction; doubly robust, and no key's
    judgements outweigh the others'. Answers of shadow calls are left out: of requests that were not sampled for one
    there is nothing that they could stand for.

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
    """What sending each request to models with those chances would have earned: the strata's estimates, each at its
    share. A negative chance is taken off."""
    of = {id(entry): found for entry, found in zip(log, chances, strict=True)}
    estimates = [doubly_robust([log[at] for at in part.places], lambda one: of[id(one)]) for part in parts]
    shared = list(zip(parts, estimates, strict=True))
    mean = sum(part.share * found.mean for part, found in shared)
    half = math.hypot(*(part.share * (found.high - found.mean) for part, found in shared))
    speaking = [(part.share, found.effective) for part, found in shared if found.effective]
    squares = sum(share**2 / effective for share, effective in speaking)
    effective = sum(share for share, _ in speaking) ** 2 / squares if squares else 0.0
    return Estimate(mean, mean - half, mean + half, effective)


def _mean(costs: Sequence[int], parts: Sequence[Stratum]) -> float:
    return sum(part.share * sum(costs[at] for at in part.places) / len(part.places) for part in parts)


def _pick(
    entry: Entry, snapshot: Snapshot, correction: Correction, correction_of: Callable[[str], Correction]
) -> Pick | None:
    """Without exploration; None where it cannot be decided."""
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
        return None  # its models are gone: nothing can be said of it under the rules of today
    if decision.model not in facts.quality:
        return None
    return Pick(decision.model, decision.expected_cost_pico_usd or 0)
