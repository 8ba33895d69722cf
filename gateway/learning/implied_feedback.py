"""Feedback inferred from what callers and cascades do, without anybody stating it. Knows protocols only.

`repeat`: the same key asks exactly the same conversation again within a minute of the answer's end, and then no more:
it kept the second answer, which counts as good, and the first as bad. Three times, or twice concurrently, is sampling
or measuring and says nothing. `format`: what a cascade verified about JSON or tool calls.

The ledger stores no prompts: fingerprints are kept in this process's memory for minutes, never written, and of each
answer only what is needed here.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from classifier.predictions import Predictions
from gateway.ledger.entry import ESCALATED, Entry, Status
from gateway.request.run import Run
from gateway.routing.decide import DIRECT
from gateway.stores import Feedback

AT_ONCE_SECONDS = 60.0
QUIET_SECONDS = 120.0
"""There must be no third request within this time after the second."""
MOST_PROMPTS = 20_000
OF_FORM = frozenset({"not_json", "off_schema", "no_tool_call", "bad_tool_call"})
FORMS = frozenset({"json_schema", "tools"})
UNSEEN = frozenset({"vision", "audio"})
Prompt = tuple[str, bytes]
"""The key and the conversation's fingerprint."""


@dataclass(slots=True)
class _Asked:
    """One request of a prompt. `model` answered it, at `ended`, which is None while it is in progress."""

    request_id: str
    key_id: str
    is_routed: bool
    quality: dict[str, float] | Predictions
    began: float
    ended: float | None = None
    model: str = ""
    is_answered: bool = False


class Judgements(Protocol):
    """Where judgements are added; a FeedbackStore."""

    async def add(self, batch: Sequence[Feedback]) -> None: ...


class ImpliedFeedback:
    """`began` and `settled` are called for every request; `flush` writes what is certain by now. Waits are measured by
    `unstepped` seconds."""

    def __init__(self, store: Judgements, now_us: Callable[[], int], unstepped: Callable[[], float]) -> None:
        self._store = store
        self._now_us = now_us
        self._unstepped = unstepped
        self._prompts: OrderedDict[Prompt, list[_Asked]] = OrderedDict()
        self._under_way: dict[str, _Asked] = {}
        self._clear: list[Feedback] = []

    def began(self, run: Run) -> None:
        """Prompts with images or sound are skipped, as their fingerprint does not cover these."""
        view = run.view
        if not view.prefixes or not UNSEEN.isdisjoint(view.needs):
            return
        prompt = (run.intent.key_id, view.prefixes[-1][0])
        times = self._prompts.get(prompt)
        if times is None:
            times = self._prompts[prompt] = []
            if len(self._prompts) > MOST_PROMPTS:
                self._prompts.popitem(last=False)
        if len(times) < 3:
            intent = run.intent
            is_routed, quality = intent.decision.rule != DIRECT, intent.decision.facts.predicted_quality
            asked = _Asked(intent.request_id, intent.key_id, is_routed, quality, self._unstepped())
            times.append(asked)
            self._under_way[asked.request_id] = asked

    def settled(self, entry: Entry) -> None:
        """Called however the request ended."""
        asked = self._under_way.pop(entry.intent.request_id, None)
        if asked is not None:
            asked.ended, asked.model = self._unstepped(), entry.model
            asked.is_answered = entry.status is Status.completed
        if entry.intent.decision.escalates_to:
            self._clear += _of_form(entry, self._now_us())

    async def flush(self) -> None:
        """What cannot be stored now is stored the next time."""
        now = self._unstepped()
        for prompt, times in list(self._prompts.items()):
            if any(one.ended is None for one in times) or now - times[-1].began < QUIET_SECONDS:
                continue
            del self._prompts[prompt]
            if len(times) == 2:
                self._clear += _of_pair(times[0], times[1], self._now_us())
        clear = list(self._clear)
        await self._store.add(clear)
        del self._clear[: len(clear)]


def _of_pair(one: _Asked, other: _Asked, now_us: int) -> list[Feedback]:
    assert one.ended is not None
    is_at_once = 0 <= other.began - one.ended <= AT_ONCE_SECONDS
    if not (one.is_routed and is_at_once and one.is_answered and other.is_answered and _may_be_better(one, other)):
        return []
    pair = ((one, 0.0), (other, 1.0))
    return [Feedback(it.request_id, now_us, "verifier", score, "repeat", it.key_id) for it, score in pair]


def _may_be_better(one: _Asked, other: _Asked) -> bool:
    """Naming a model for the second try means asking a stronger one; otherwise it is a comparison."""
    return other.is_routed or one.quality.get(other.model, 0.0) > one.quality.get(one.model, 1.0)


def _of_form(entry: Entry, now_us: int) -> list[Feedback]:
    """About the model asked first, whoever answered in the end; only if a format was asked for."""
    decision = entry.intent.decision
    if FORMS.isdisjoint(decision.facts.needs):
        return []
    refused = [one for one in entry.attempts if one.model == decision.model and one.outcome.startswith(ESCALATED)]
    if refused:
        is_of_form = refused[0].outcome.removeprefix(ESCALATED) in OF_FORM
        return [_of_format(entry, now_us, 0.0)] if is_of_form else []
    stood = entry.status is Status.completed and [one.model for one in entry.attempts] == [decision.model]
    return [_of_format(entry, now_us, 1.0)] if stood else []


def _of_format(entry: Entry, now_us: int, score: float) -> Feedback:
    return Feedback(entry.intent.request_id, now_us, "verifier", score, "format", entry.intent.key_id)
