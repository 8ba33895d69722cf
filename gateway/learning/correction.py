"""From judged answers in the ledger to what they teach the classifier. Pure.

Depends only on the ledger and the feedback table: the same rows give the same correction.
"""

from collections.abc import Callable, Iterable, Sequence
from statistics import fmean
from typing import NamedTuple

from classifier.online.correction import Correction, Outcome
from gateway.learning.voices import factors
from gateway.ledger.entry import Entry
from gateway.routing.decide import DIRECT
from gateway.stores import Feedback, FeedbackSource

TRUST: dict[FeedbackSource, float] = {"caller": 1.0, "judge": 0.7, "shadow": 0.5, "format": 0.3, "repeat": 0.2}
"""Weight of one judgement: a caller knows what was wanted, a program that compares answers only guesses."""
IMPLIED: tuple[FeedbackSource, ...] = ("format", "shadow", "repeat")
"""Inferred feedback, the first that there is, counts only where nothing explicit exists. It teaches, but never decides
promotion. It weighs, like a judge model's, as the word of the key whose request it is about: its prompts brought it
about."""


class Judged(NamedTuple):
    """One request with the weighted mean of its latest judgements. `is_implied`: they were inferred, not given. With
    `of_asked` they concern the model that a cascade asked first, whoever answered in the end. `voter` is the key that
    judged, or whose request a program or model judged. `of_form`: a program looked at the answer's form alone."""

    entry: Entry
    score: float
    weight: float
    is_implied: bool = False
    of_asked: bool = False
    voter: str | None = None
    of_form: bool = False


class Word(NamedTuple):
    """The combined judgement of all sources on one request."""

    score: float
    weight: float
    is_implied: bool = False
    of_asked: bool = False
    voter: str | None = None
    of_form: bool = False


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
    if said:
        weight = sum(TRUST[source] for source in said)
        score = sum(TRUST[source] * one.score for source, one in said.items()) / weight
        return Word(score, weight, voter=heard or said["judge"].key_id)
    one = min(last.values(), key=lambda one: IMPLIED.index(one.source))
    is_of_asked, is_of_form = one.source == "format", one.source != "repeat"
    return Word(one.score, TRUST[one.source], True, is_of_asked, one.key_id, is_of_form)


def routed(judged: Iterable[Judged]) -> list[Judged]:
    """Requests decided by rules and answered by the chosen model: others say nothing about the choice. Answers that
    passed a cascade's verification are left out, as that selection flatters their model."""
    return [
        one
        for one in judged
        if one.entry.intent.decision.rule != DIRECT
        and (one.of_asked or _is_as_chosen(one.entry))
        and one.entry.intent.decision.facts.difficulty is not None
        and one.entry.intent.decision.model in one.entry.intent.decision.facts.predicted_quality
    ]


def _is_as_chosen(entry: Entry) -> bool:
    return entry.model == entry.intent.decision.model and not entry.intent.decision.escalates_to


def outcomes(judged: Iterable[Judged], correction_of: Callable[[str], Correction]) -> list[Outcome]:
    """What the frozen classifier predicted for each answer; `correction_of` a decision's classifier version undoes that
    version's correction.

    Per model, no key's judgements outweigh the others' (see gateway.learning.voices)."""
    by_model: dict[str, list[_Known]] = {}
    for one in routed(judged):
        decision = one.entry.intent.decision
        difficulty, model = decision.facts.difficulty, decision.model
        assert difficulty is not None
        quality = correction_of(decision.classifier_version).undo(
            model, decision.facts.predicted_quality[model], difficulty
        )
        by_model.setdefault(model, []).append(_Known(one, quality, difficulty))
    found: list[Outcome] = []
    for model, known in by_model.items():
        rows = _telling(known)
        heard = factors((one.voter, one.weight) for one, _, _ in rows)
        found += [
            Outcome(model, quality, hard, one.score, one.weight * heard[one.voter]) for one, quality, hard in rows
        ]
    return found


class _Known(NamedTuple):
    judged: Judged
    quality: float
    difficulty: float


def _telling(rows: list[_Known]) -> list[_Known]:
    """Without judgements of form, unless it is wrong more often than the model's answers are predicted, and said, to be
    bad: a right form does not make an answer good, so form can only show that a model is worse."""
    of_form = [row for row in rows if row.judged.of_form]
    if not of_form:
        return rows
    rest = [row for row in rows if not row.judged.of_form]
    thought = fmean(row.quality for row in of_form)
    said = fmean(row.judged.score for row in rest) if rest else 1.0
    return rows if fmean(row.judged.score for row in of_form) < min(thought, said) else rest


def correction_name(classifier_version: str) -> str | None:
    """The correction named in a decision's classifier version."""
    return classifier_version.partition("+")[2] or None
