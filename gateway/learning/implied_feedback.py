"""What callers and cascades do that says how good an answer was, though nobody said so. Knows protocols only.

`repeat`: the same key asks the very same conversation once more, at most a minute after its answer had ended, and then
no more: of the two answers the second was kept, so it counts as good and the first as not. Who asks three times, or
twice at once, is sampling or measuring and says nothing. `format`: what a cascade verified of JSON or tool calls.

The books keep no prompts: fingerprints are held in this process's memory for minutes, never written.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from gateway.ledger.entry import ESCALATED, Entry, Status
from gateway.request.run import Run
from gateway.routing.decide import AUTO
from gateway.stores import Feedback, FeedbackSource

AT_ONCE_US = 60_000_000
QUIET_US = 120_000_000
"""So long after the second time there must be no third."""
MOST_PROMPTS = 20_000
OF_FORM = frozenset({"not_json", "off_schema", "no_tool_call", "bad_tool_call"})
FORMS = frozenset({"json_schema", "tools"})
UNSEEN = frozenset({"vision", "audio"})
Prompt = tuple[str, bytes]
"""The key and the conversation's fingerprint."""


@dataclass(slots=True)
class _Asked:
    """One request of a prompt. `entry` is its settlement, at `ended_us`."""

    request_id: str
    began_us: int
    ended_us: int = 0
    entry: Entry | None = None


class Judgements(Protocol):
    """Where they are added; a FeedbackStore."""

    async def add(self, batch: Sequence[Feedback]) -> None: ...


class ImpliedFeedback:
    """Told of every request's begin and end; `flush` writes what has become clear."""

    def __init__(self, store: Judgements, now_us: Callable[[], int]) -> None:
        self._store = store
        self._now_us = now_us
        self._prompts: OrderedDict[Prompt, list[_Asked]] = OrderedDict()
        self._under_way: dict[str, _Asked] = {}
        self._clear: list[Feedback] = []

    def began(self, run: Run) -> None:
        """A prompt whose fingerprint does not cover its pictures or sounds is not recognised."""
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
            asked = _Asked(run.intent.request_id, self._now_us())
            times.append(asked)
            self._under_way[asked.request_id] = asked

    def settled(self, entry: Entry) -> None:
        """However it ended."""
        asked = self._under_way.pop(entry.intent.request_id, None)
        if asked is not None:
            asked.ended_us, asked.entry = self._now_us(), entry
        if entry.intent.decision.escalates_to:
            self._clear += _of_form(entry, self._now_us())

    async def flush(self) -> None:
        """What cannot be stored now is stored the next time."""
        now = self._now_us()
        for prompt, times in list(self._prompts.items()):
            if any(one.entry is None for one in times) or now - times[-1].began_us < QUIET_US:
                continue
            del self._prompts[prompt]
            if len(times) == 2:
                self._clear += _of_pair(times[0], times[1], now)
        clear = list(self._clear)
        await self._store.add(clear)
        del self._clear[: len(clear)]


def _of_pair(first: _Asked, second: _Asked, now_us: int) -> list[Feedback]:
    one, other = first.entry, second.entry
    assert one is not None
    assert other is not None
    is_routed = one.intent.requested_model == AUTO
    is_at_once = 0 <= second.began_us - first.ended_us <= AT_ONCE_US
    is_answered = one.status is other.status is Status.completed
    if not (is_routed and is_at_once and is_answered and _may_be_better(one, other)):
        return []
    return [_feedback(one, now_us, 0.0, "repeat"), _feedback(other, now_us, 1.0, "repeat")]


def _may_be_better(one: Entry, other: Entry) -> bool:
    """Who names a model for the second try means a stronger one, or is comparing."""
    if other.intent.requested_model == AUTO:
        return True
    quality = one.intent.decision.facts.quality
    return quality.get(other.model, 0.0) > quality.get(one.model, 1.0)


def _of_form(entry: Entry, now_us: int) -> list[Feedback]:
    """On the model that was asked first, whoever answered in the end; only where a form was asked for."""
    decision = entry.intent.decision
    if FORMS.isdisjoint(decision.facts.needs):
        return []
    refused = [one for one in entry.attempts if one.model == decision.model and one.outcome.startswith(ESCALATED)]
    if refused:
        is_of_form = refused[0].outcome.removeprefix(ESCALATED) in OF_FORM
        return [_feedback(entry, now_us, 0.0, "format")] if is_of_form else []
    stood = entry.status is Status.completed and [one.model for one in entry.attempts] == [decision.model]
    return [_feedback(entry, now_us, 1.0, "format")] if stood else []


def _feedback(entry: Entry, now_us: int, score: float, source: FeedbackSource) -> Feedback:
    return Feedback(entry.intent.request_id, now_us, "verifier", score, source, entry.intent.key_id)
