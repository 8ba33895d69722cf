"""From judged answers in the ledger to what they teach the classifier. Pure.

Depends only on the ledger and the feedback table: the same rows give the same correction.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from classifier.online.correction import Correction, Outcome
from gateway.learning.voices import factors
from gateway.ledger.entry import Entry
from gateway.routing.decide import DIRECT
from gateway.stores import Feedback, FeedbackSource

TRUST: dict[FeedbackSource, float] = {"caller": 1.0, "judge": 0.7, "shadow": 0.5, "format": 0.3, "repeat": 0.2}
"""Weight of one judgement: a caller knows what was wanted, a program that compares answers only guesses."""
IMPLIED: frozenset[FeedbackSource] = frozenset({"shadow", "format", "repeat"})
"""Inferred feedback counts only where nothing explicit exists. It teaches, but never decides promotion, and weighs as
the word of the key whose request it is about: its prompts brought it about."""


class Judged(NamedTuple):
    """One request with the weighted mean of its latest judgements. `is_implied`: they were inferred, not given. With
    `of_asked` they concern the model that a cascade asked first, whoever answered in the end. `voter` is the key that
    judged, None for a program."""

    entry: Entry
    score: float
    weight: float
    is_implied: bool = False
    of_asked: bool = False
    voter: str | None = None


class Word(NamedTuple):
    """The combined judgement of all sources on one request."""

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
    """The latest judgement of each source on a request of the key `asker`, weighted by trust.

    Of several keys only one counts, the asker or else the first to judge, so that nobody overrides another's judgement.
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
    return Word(mean, weight, is_implied=not said, voter=heard if said else rows[-1].key_id)


def routed(judged: Iterable[Judged]) -> list[Judged]:
    """Requests decided by rules and answered by the chosen model: others say nothing about the choice. Answers that
    passed a cascade's verification are left out, as that selection flatters their model."""
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
    """What the frozen classifier predicted for each answer; `correction_of` a decision's classifier version undoes that
    version's correction.

    Per model, no key's judgements outweigh the others' (see gateway.learning.voices)."""
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
    """The correction named in a decision's classifier version."""
    return classifier_version.partition("+")[2] or None
