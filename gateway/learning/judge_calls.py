"""The judge's calls: a model is asked about pairs of shadow answers, in both orders, within the shadow calls' budget.

Each call is an entry of the operation `judge` that belongs to no key. The judge sees a prompt only if the request's
rule and key might have sent it there: what keeps prompts at some models keeps them from the judge too. Knows protocols
only.
"""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from typing import Final, Literal

from gateway.ids import new_request_id
from gateway.learning.answers import read_answer
from gateway.learning.judging import (
    MOST_CHARACTERS,
    REASONING_TOKENS,
    VERDICT_TOKENS,
    Verdict,
    is_tied,
    judge_body,
    parse_verdict,
    scores_of,
    shown_request,
)
from gateway.learning.shadow import NO_MONEY, money_for
from gateway.learning.verify import answer_text
from gateway.ledger.entry import JUDGE, Decision, Facts, Intent
from gateway.limits.admission import Admission
from gateway.request.callers import KeepingAnswer
from gateway.request.cost_bounds import REASONING, bound_pico_usd
from gateway.request.metering import Meter
from gateway.request.run import Caller, Run
from gateway.request.view import RequestView, parse_request
from gateway.routing.decide import Choice
from gateway.routing.snapshot import Candidate, Snapshot
from gateway.stores import Feedback, FeedbackStore

log = logging.getLogger(__name__)
RULE: Final = "(judge)"
"""Stands for the rule's name: no rule can be called that."""
LONGEST_SECONDS: Final = 120.0
"""Of one call."""
UNSEEN: Final = frozenset({"vision", "audio"})
Outcome = Literal[
    "judged",
    "tied",  # judged, but the order decided which answer was better
    "no_verdict",  # what the judge said is none, or contradicts itself
    "failed",  # the model or the database did not answer
    "over_budget",
    "no_model",  # the catalogue has no such model now, or no price of it
    "not_allowed",  # the request's rule or key does not let the judge see it
    "own_answer",  # one of the two is the judge's own
    "unsuited",  # pictures, sound or files, too long, or no answer
]


class JudgeCalls:
    """A PairJudge. `told` is called with what came of each pair; the other arguments are as for ShadowCalls."""

    def __init__(
        self,
        model: str,
        admission: Admission,
        serve: Callable[[Run, Caller], Awaitable[None]],
        store: FeedbackStore,
        *,
        priced_at: Callable[[int], Snapshot],
        now_us: Callable[[], int],
        monotonic: Callable[[], float],
        told: Callable[[Outcome], None],
    ) -> None:
        self.model = model
        self._admission = admission
        self._serve = serve
        self._store = store
        self._priced_at = priced_at
        self._now_us = now_us
        self._monotonic = monotonic
        self._told = told

    async def judge(self, run: Run, again: Run, answers: tuple[bytes, bytes], form: tuple[float, float]) -> None:
        """Stores what the judge says of both answers, or counts why it said nothing."""
        try:
            outcome = await self._judged(run, again, answers, form)
        except Exception as error:  # noqa: BLE001 - nobody waits for it, and the pair is noted already
            log.warning("the judge %s was asked in vain (%s)", self.model, type(error).__name__)
            outcome = "failed"
        self._told(outcome)

    async def _judged(self, run: Run, again: Run, answers: tuple[bytes, bytes], form: tuple[float, float]) -> Outcome:
        assert run.entry is not None
        if self.model in (run.entry.model, again.intent.decision.model):
            return "own_answer"
        if all(ranked.candidate.name != self.model for ranked in run.choice.weighed):
            return "not_allowed"
        first, second = map(read_answer, answers)
        if first is None or second is None or run.view.is_open_ended or not UNSEEN.isdisjoint(run.view.needs):
            return "unsuited"
        request = shown_request(run.body)
        texts = (first.shown, second.shown)
        if len(request) + sum(map(len, texts)) > MOST_CHARACTERS:
            return "unsuited"
        found = await self._ask_both(run, request, texts)
        if isinstance(found, str):
            return found
        pairs = zip((run.intent.request_id, again.intent.request_id), map(min, scores_of(*found), form), strict=True)
        now_us, asker = self._now_us(), run.intent.key_id
        await self._store.add([Feedback(name, now_us, "label", score, "judge", asker) for name, score in pairs])
        return "tied" if is_tied(*found) else "judged"

    async def _ask_both(self, run: Run, request: str, texts: tuple[str, str]) -> tuple[Verdict, Verdict] | Outcome:
        """The verdicts for both orders, each about the answers in the order of `texts`."""
        snapshot = self._priced_at(self._now_us())
        model = snapshot.candidates.get(self.model)
        if model is None or model.is_simulated or model.specialty is not None:
            return "no_model"
        bodies = [_body(model, request, order) for order in (texts, (texts[1], texts[0]))]
        view = parse_request("chat.completions", bodies[0])
        if view.input_tokens + (view.max_output_tokens or 0) > model.context_window:
            return "unsuited"
        bound = bound_pico_usd(model, view)  # of either order, as both have the same length
        if bound is None:
            return "no_model"
        choice = Choice(_decision(model, snapshot, view), (model,), ())
        calls = [self._intent(run, model, choice.decision, bound) for _ in bodies]
        verdicts: list[Verdict] = []
        try:
            async with money_for(self._admission, *calls):
                for body, intent in zip(bodies, calls, strict=True):
                    asked = Run(view, body, choice, intent, Meter(self._monotonic()), model)
                    verdict = await self._ask(asked)
                    if verdict is None:
                        return "no_verdict"
                    verdicts.append(verdict)
        except NO_MONEY:
            return "over_budget"
        return verdicts[0], verdicts[1].swapped

    async def _ask(self, asked: Run) -> Verdict | None:
        sink = KeepingAnswer()
        async with asyncio.timeout(LONGEST_SECONDS):
            await self._serve(asked, sink)
        return parse_verdict(answer_text(sink.payload) or "")

    def _intent(self, run: Run, model: Candidate, decision: Decision, bound: int) -> Intent:
        """A request of our own: without a key, with `judge` as operation, in the trace of the request it is about."""
        return Intent(
            request_id=new_request_id(),
            accepted_at_us=self._now_us(),
            key_id=JUDGE,
            team=None,
            project=None,
            tags=(),
            operation=JUDGE,
            requested_model=model.name,
            is_stream=False,
            decision=decision,
            backend=model.backend,
            provider=model.provider,
            upstream_model=model.upstream_model,
            cost_bound_pico_usd=bound,
            traceparent=run.intent.traceparent,
        )


def _decision(model: Candidate, snapshot: Snapshot, view: RequestView) -> Decision:
    return Decision(
        rule=RULE,
        model=model.name,
        candidates=(model.name,),
        expected_cost_pico_usd=None,
        predicted_quality=None,
        propensity=1.0,
        rules_version=snapshot.rules_version,
        prices_version=snapshot.prices_version,
        classifier_version=snapshot.classifier_version,
        facts=Facts(view.input_tokens, view.max_output_tokens, None, None, {}, {}, needs=view.needs),
    )


def _body(model: Candidate, request: str, texts: tuple[str, str]) -> bytes:
    return judge_body(
        model.name,
        request,
        texts,
        code=secrets.token_hex(8),
        limit=REASONING_TOKENS if REASONING in model.supports else VERDICT_TOKENS,
        has_schema="json_schema" in model.supports,
    )
