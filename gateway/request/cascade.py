"""Asks the cheap model, verifies its whole answer, and asks a stronger one if that fails. For one request.

Both answers are attempts of one entry and both are charged; money for both was held before the first call. A failed
answer is kept, and returned after all if no stronger model answers.
"""

import asyncio
from dataclasses import dataclass

import msgspec

from backends.errors import BackendError
from backends.formats.json_splice import NotAnObject, splice
from gateway.ledger.entry import ESCALATED
from gateway.request.answer_checks import is_asked_for_logprobs, objection, without_logprobs
from gateway.request.dispatch import Dispatcher
from gateway.request.metering import Meter
from gateway.request.run import Answer, Run
from gateway.request.settlement import NO_EXTRA, ExtraCost, paid_to, refused_cost
from gateway.routing.decide import Escalation
from gateway.routing.snapshot import Candidate


async def cascade(run: Run, dispatcher: Dispatcher) -> Answer | BackendError | None:
    """As `Dispatcher.first_output`. A failure before there is an answer to verify is escalated too."""
    escalation = run.choice.escalation
    assert escalation is not None
    asks_more, caller_body = _asks_more(run, escalation), run.body
    if asks_more:
        run.body = _with_logprobs(caller_body)
    found = await dispatcher.first_output(run)
    run.body = caller_body
    refused: _Refused | None = None
    if isinstance(found, Answer):
        answer = _plain(found) if asks_more else found
        # In a thread: a large schema takes a tenth of a second, and other requests are streaming.
        try:
            word = await asyncio.to_thread(objection, caller_body, found.first[-1].payload, escalation.verify)
        except BaseException:  # the caller left meanwhile: nobody else will close the reply
            dispatcher.upstreams.ended(run.candidate)
            await found.reply.aclose()
            raise
        if word is None:
            return answer
        refused = _Refused(answer, run.candidate, run.key, run.meter, _answered(run))
        await refused.put_aside(run, dispatcher, word)
    run.choice = msgspec.structs.replace(
        run.choice, order=escalation.order, escalation=None, attempts_before=_last_number(run)
    )
    second = await dispatcher.first_output(run)
    if isinstance(second, Answer) or refused is None:
        return second
    return refused.bring_back(run, dispatcher)


@dataclass(slots=True)
class _Refused:
    """An answer that failed verification, and the run's state when it arrived."""

    answer: Answer
    candidate: Candidate
    key: str
    meter: Meter
    attempt: int
    cost: ExtraCost = ExtraCost()  # noqa: RUF009 (frozen)

    async def put_aside(self, run: Run, dispatcher: Dispatcher, word: str) -> None:
        """Its attempt is charged in addition to the next answer."""
        dispatcher.upstreams.ended(self.candidate)
        await self.answer.reply.aclose()
        self.cost = refused_cost(self.candidate, run.view, self.meter)
        run.extra = run.extra.plus(self.cost)
        self._note(run, f"{ESCALATED}{word}", self.cost)

    def bring_back(self, run: Run, dispatcher: Dispatcher) -> Answer:
        """It is the request's answer after all, and its cost the entry's own."""
        now = dispatcher.monotonic()
        dispatcher.upstreams.started(self.candidate, self.key, now)  # delivery will report its end
        dispatcher.upstreams.called_off(self.candidate, self.key, now)
        run.candidate, run.key, run.meter = self.candidate, self.key, self.meter
        run.extra = run.extra.minus(self.cost)
        self._note(run, "answered", NO_EXTRA)
        return self.answer

    def _note(self, run: Run, outcome: str, cost: ExtraCost) -> None:
        run.attempts[self.attempt] = msgspec.structs.replace(
            run.attempts[self.attempt],
            outcome=outcome,
            cost_pico_usd=cost.estimate_pico_usd,
            paid_to=paid_to(self.candidate, cost),
        )


def _asks_more(run: Run, escalation: Escalation) -> bool:
    return escalation.verify.min_mean_logprob is not None and not is_asked_for_logprobs(run.body)


def _with_logprobs(body: bytes) -> bytes:
    try:
        return splice(body, {"logprobs": b"true"})
    except NotAnObject:
        return body  # the adapter refuses it with a proper error


def _plain(answer: Answer) -> Answer:
    chunk = answer.first[-1]
    shown = msgspec.structs.replace(chunk, payload=without_logprobs(chunk.payload))
    return Answer(answer.reply, [*answer.first[:-1], shown], answer.rest)


def _answered(run: Run) -> int:
    return next(place for place, one in enumerate(run.attempts) if one.outcome == "answered")


def _last_number(run: Run) -> int:
    return max((one.number for one in run.attempts), default=0)
