"""Shadow calls: a sampled share of requests is repeated with another model that the rule allows, off the path, under a
spending cap, with the sampling propensity recorded. The caller sees one answer and waits for none of this.

The cost of a shadow call is an entry of the operation `shadow` that belongs to no key, with its own usage and the
prices of its own model and time. Simple programs judge both answers as far as they can, and a judge model if there is
one. Knows protocols only.
"""

import asyncio
import json
import logging
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from backends.protocol import Chunk
from gateway.errors import BudgetExhausted, Overloaded
from gateway.ids import new_request_id
from gateway.learning.verify import judge
from gateway.ledger.entry import SHADOW, Intent
from gateway.limits.admission import Admission
from gateway.request.callers import KeepingAnswer, PassingCaller
from gateway.request.cost_bounds import bound_pico_usd
from gateway.request.metering import Meter
from gateway.request.run import Caller, Run
from gateway.routing.snapshot import Candidate, Snapshot
from gateway.stores import Feedback, FeedbackStore, ShadowCall

log = logging.getLogger(__name__)
RULE = "(shadow)"
"""Stands for the rule's name: no rule can be called that."""
MOST_AT_ONCE = 4
CHATS = ("chat.completions", "messages")
"""Operations whose answers can be compared."""
MOST_ANSWER_BYTES = 1 << 20


NO_MONEY = (BudgetExhausted, Overloaded)
"""What `money_for` raises: the day's money is spent or held, or cannot be counted now."""


@asynccontextmanager
async def money_for(admission: Admission, *calls: Intent) -> AsyncGenerator[None]:
    """Holds the most that all of these calls can cost; what is not settled within the block is returned after it.

    Raises NO_MONEY, also if others merely hold it: callers who need less would have to wait behind these calls.
    """
    try:
        for call in calls:
            amount = call.cost_bound_pico_usd
            await admission.reserve(call.request_id, call.key_id, amount, now_us=call.accepted_at_us, may_wait=False)
        yield
    finally:
        for call in calls:
            admission.cancel(call.request_id)


class PairJudge(Protocol):
    """Judges pairs of answers, of which a program has seen no more than the form."""

    @property
    def model(self) -> str:
        """The one that judges, and judges no answer of its own."""
        ...

    async def judge(self, run: Run, again: Run, answers: tuple[bytes, bytes], form: tuple[float, float]) -> None:
        """`run` is the caller's request and `again` its shadow call; the answers are as they were sent. `form`: their
        scores by a program; what it finds wrong is not good enough, whatever the judge says. Never fails."""
        ...


class ShadowCalls:
    """`listen` wraps the caller of an accepted request; `serve` is the pipeline's way to answer a request of our
    own."""

    def __init__(
        self,
        share: float,
        admission: Admission,
        serve: Callable[[Run, Caller], Awaitable[None]],
        store: FeedbackStore,
        *,
        priced_at: Callable[[int], Snapshot],
        now_us: Callable[[], int],
        monotonic: Callable[[], float],
        judge: PairJudge | None = None,
        generator: random.Random | None = None,
    ) -> None:
        self._share = share
        self._admission = admission
        self._serve = serve
        self._store = store
        self._priced_at = priced_at
        self._now_us = now_us
        self._monotonic = monotonic
        self._judge = judge
        self._random = generator or random.SystemRandom()
        self._tasks: set[asyncio.Task[None]] = set()

    def listen(self, caller: Caller, run: Run) -> Caller:
        """The same caller or, for a sampled request, one that records the answer and then has it repeated."""
        if self._random.random() >= self._share:
            return caller
        others = alternatives(run)
        return _Listening(caller, self, run, others) if others else caller

    def repeat(self, run: Run, others: tuple[Candidate, ...], answer: bytes) -> None:
        """Starts the second call, unless too many are in progress; it is made if the day's budget has room."""
        entry = run.entry
        able = tuple(one for one in others if entry is not None and one.name != entry.model)
        if entry is None or entry.status != "completed" or not able or len(self._tasks) >= MOST_AT_ONCE:
            return
        if self._judge is not None:
            able = tuple(one for one in able if one.name != self._judge.model) or able
        snapshot = self._priced_at(self._now_us())  # prices or models may have changed during the answer
        candidate = snapshot.candidates.get(self._random.choice(able).name)
        if candidate is None:
            return
        again = self._run(run, candidate, snapshot.prices_version, self._share / len(able))
        task = asyncio.create_task(self._ask(run, again, answer), name="shadow")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def drain(self, timeout_seconds: float) -> None:
        """Lets calls in progress end; those that take too long are cancelled, and booked as such."""
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=timeout_seconds)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    def _run(self, run: Run, candidate: Candidate, prices_version: str, propensity: float) -> Run:
        """Our own request: not streamed, without a key, with `shadow` as operation."""
        facts = run.choice.decision.facts
        decision = msgspec.structs.replace(
            run.choice.decision,
            facts=msgspec.structs.replace(facts, repeated_tokens=0),  # there will be no next turn
            rule=RULE,
            model=candidate.name,
            propensity=propensity,
            prices_version=prices_version,
            escalates_to=(),
        )
        view = msgspec.structs.replace(run.view, is_stream=False)
        intent = msgspec.structs.replace(
            run.intent,
            request_id=new_request_id(),
            accepted_at_us=self._now_us(),
            key_id=SHADOW,
            team=None,
            project=None,
            tags=(),
            operation=SHADOW,
            is_stream=False,
            decision=decision,
            backend=candidate.backend,
            provider=candidate.provider,
            upstream_model=candidate.upstream_model,
            cost_bound_pico_usd=bound_pico_usd(candidate, view),
            is_simulated=candidate.is_simulated,
            batch_id=None,
            end_user=None,
        )
        choice = msgspec.structs.replace(run.choice, decision=decision, order=(candidate,), escalation=None)
        return Run(view, plain_body(run.body), choice, intent, Meter(self._monotonic()), candidate, headers=run.headers)

    async def _ask(self, run: Run, again: Run, answer: bytes) -> None:
        sink = KeepingAnswer()
        try:
            async with money_for(self._admission, again.intent):
                await self._serve(again, sink)
            await self._note(run, again, answer, sink.payload)
        except NO_MONEY:
            return  # another request will be compared when there is money; if its store is down, the log says so
        except Exception as error:  # noqa: BLE001 - the outermost edge of this task: nobody waits for it
            log.warning("a shadow call to %s came to nothing (%s)", again.candidate.name, type(error).__name__)

    async def _note(self, run: Run, again: Run, answer: bytes, other: bytes) -> None:
        now_us, first, second = self._now_us(), run.intent.request_id, again.intent.request_id
        await self._store.add_shadow(ShadowCall(second, first, now_us, again.intent.decision.propensity))
        scores = judge(run.body, answer, other)
        if scores is not None:
            pairs = zip((first, second), scores, strict=True)
            asker = run.intent.key_id
            await self._store.add(
                [Feedback(request_id, now_us, "verifier", score, "shadow", asker) for request_id, score in pairs]
            )
        if self._judge is not None:
            await self._judge.judge(run, again, (answer, other), scores or (1.0, 1.0))


def alternatives(run: Run) -> tuple[Candidate, ...]:
    """Other models that the request's rule allows and that can serve it, including those judged too weak.

    Empty if the caller named a model, or if nothing real could be learnt.
    """
    if run.view.operation not in CHATS or run.view.choices != 1 or run.choice.order[0].is_simulated:
        return ()
    return tuple(
        ranked.candidate
        for ranked in run.choice.weighed
        if ranked.candidate.name != run.candidate.name
        and not ranked.candidate.is_simulated
        and ranked.rejected is None  # a rule's limits reject nothing here: models considered too weak are worth asking
    )


def plain_body(body: bytes) -> bytes:
    """The caller's request, changed to ask for an answer in one piece."""
    fields: dict[str, Any] = json.loads(body)
    for name in ("stream", "stream_options"):
        fields.pop(name, None)
    return json.dumps(fields).encode()


@dataclass(slots=True)
class _Listening(PassingCaller):
    """A Caller that records what passes through, up to the size that can be judged."""

    shadows: ShadowCalls
    run: Run
    others: tuple[Candidate, ...]
    answer: bytearray = field(default_factory=bytearray)

    async def send(self, payload: bytes, *, chunk: Chunk | None = None, is_last: bool = False) -> None:
        await self.caller.send(payload, chunk=chunk, is_last=is_last)
        if len(self.answer) < MOST_ANSWER_BYTES:
            self.answer += payload
        if is_last:
            self.shadows.repeat(self.run, self.others, bytes(self.answer))
