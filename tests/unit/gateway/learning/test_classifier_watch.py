"""Alarms are raised by lasting contradiction and by changed traffic, not by feedback from before the start."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import generate_latest

from gateway.learning.classifier_watch import REFERENCE_REQUESTS, ClassifierWatch
from gateway.ledger.entry import Entry
from gateway.routing.decide import DIRECT
from gateway.stores import Correction, EntryWanted, Feedback, FeedbackSource
from gateway.telemetry.metrics import Metrics
from tests.memory_ledger import MemoryLedger
from tests.unit.gateway.learning.memory_feedback import MemoryFeedback
from tests.unit.gateway.ledger.builders import make_decision, make_entry, make_facts, make_intent, request_id


class Books:
    """EntryStore over a list."""

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}

    async def find(self, wanted: EntryWanted) -> list[Entry]:
        return list(self.entries.values())[: wanted.limit]

    async def get(self, request_id: str) -> Entry | None:
        return self.entries.get(request_id)

    async def corrections(self, request_ids: Sequence[str]) -> dict[str, list[Correction]]:
        return {}


def entries(difficulties: Iterable[float]) -> list[Entry]:
    return [
        make_entry(number, intent=make_intent(number, decision=make_decision(facts=make_facts(difficulty=difficulty))))
        for number, difficulty in enumerate(difficulties, start=1)
    ]


def feedback(number: int, score: float) -> Feedback:
    return Feedback(request_id(number), number, "score", score, "caller", "key-1", number=number)


async def test_lasting_bad_feedback_on_one_model_raises_an_alarm_that_says_what_to_do() -> None:
    store, books = MemoryFeedback(), Books()
    watch = ClassifierWatch(store, books)
    metrics = Metrics(MemoryLedger())
    metrics.tell(watch.settled)
    watch.show(metrics)
    for one in entries([0.25] * 60):
        books.entries[one.intent.request_id] = one
        metrics.settled(one)
    await store.add([feedback(number, 0.0) for number in range(1, 31)])
    await watch.look()
    assert watch.alarms() == []  # it was given before the start
    await store.add([feedback(number, 0.0) for number in range(31, 61)])
    await watch.look()
    assert watch.alarms() == [
        "the classifier is overconfident of mid-hosted: `breakeven classifier learn`, then promote what it finds"
    ]
    assert b"breakeven_classifier_alarms 1.0" in generate_latest(metrics.registry)


@pytest.mark.parametrize("source", ["caller", "judge"])
async def test_one_keys_answers_raise_no_alarm_beside_the_others(source: FeedbackSource) -> None:
    """Whether it judges them itself, or a judge model does."""
    store, books = MemoryFeedback(), Books()
    watch = ClassifierWatch(store, books)
    await watch.look()
    for one in entries([0.25] * 440):
        books.entries[one.intent.request_id] = one
        watch.settled(one)
    others = [replace(feedback(number, 0.9), key_id=f"key-{number % 20}") for number in range(1, 401)]
    own = [replace(feedback(number, 0.0), key_id="loud") for number in range(401, 441)]
    await store.add([replace(one, source=source) for one in [*others, *own]])
    await watch.look()
    assert watch.alarms() == []


async def test_feedback_that_was_not_looked_at_when_the_database_went_down_is_looked_at_later() -> None:
    class Failing(Books):
        is_down = True

        async def get(self, request_id: str) -> Entry | None:
            if self.is_down:
                raise OSError("the database is down")
            return await super().get(request_id)

    store, books = MemoryFeedback(), Failing()
    watch = ClassifierWatch(store, books)
    await watch.look()
    for one in entries([0.25] * 30):
        books.entries[one.intent.request_id] = one
        watch.settled(one)
    await store.add([feedback(number, 0.0) for number in range(1, 31)])
    with pytest.raises(OSError, match="down"):
        await watch.look()
    books.is_down = False
    await watch.look()
    assert len(watch.alarms()) == 1


@pytest.mark.parametrize(
    ("decided", "requests"),
    [({}, 1), ({"escalates_to": ("big",)}, 40), ({"rule": DIRECT}, 40), ({"model": "small-local"}, 40)],
    ids=["one request judged again and again", "passed a cascade's check", "a model that was named", "a fallback"],
)
async def test_judgements_that_teach_nothing_raise_no_alarm(decided: dict[str, Any], requests: int) -> None:
    store, books = MemoryFeedback(), Books()
    watch = ClassifierWatch(store, books)
    await watch.look()
    for number in range(1, requests + 1):
        one = make_entry(number, intent=make_intent(number, decision=make_decision(**decided)))
        books.entries[one.intent.request_id] = one
        watch.settled(one)
    await store.add([replace(feedback(1 + number % requests, 0.0), number=number + 1) for number in range(40)])
    await watch.look()
    assert watch.alarms() == []


async def test_feedback_on_requests_that_never_reached_the_books_is_passed_over() -> None:
    store = MemoryFeedback()
    watch = ClassifierWatch(store, Books())
    await watch.look()
    await store.add([feedback(number, 0.0) for number in range(1, 40)])
    await watch.look()
    assert watch.alarms() == []


@pytest.mark.parametrize(("later", "is_alarmed"), [(0.25, False), (0.85, True)])
def test_other_traffic_raises_an_alarm(later: float, is_alarmed: bool) -> None:
    watch = ClassifierWatch(MemoryFeedback(), Books())
    for one in entries([0.25] * REFERENCE_REQUESTS + [later] * 400):
        watch.settled(one)
    assert bool(watch.alarms()) is is_alarmed
    assert (watch.drift > 0.25) is is_alarmed


def test_another_version_has_a_reference_of_its_own() -> None:
    watch = ClassifierWatch(MemoryFeedback(), Books())
    for one in entries([0.25] * REFERENCE_REQUESTS + [0.85] * 400):
        watch.settled(one)
    watch.settled(make_entry(1, intent=make_intent(1, decision=make_decision(classifier_version="another"))))
    assert watch.alarms() == []
    assert watch.drift == 0.0
