"""Books one request: reserves money, writes the intent and checkpoints, and settles exactly once."""

import asyncio
from collections.abc import Callable, Iterable

import msgspec

from gateway.ledger.entry import Entry, Ledger, Status
from gateway.limits.admission import Admission
from gateway.request.cost_bounds import REASONING, cascade_bound_pico_usd, increment_pico_usd, unseen_tokens
from gateway.request.run import Observer, Run
from gateway.request.settlement import Outcome, checkpoint_of, settle_entry
from gateway.routing.snapshot import Candidate
from gateway.upstreams.generation_speeds import GenerationSpeeds

FAILED = Status.failed
BROKEN_OFF = (Status.cancelled, Status.partial)


class Bookkeeper(msgspec.Struct):
    """Holds no state of its own: the state of a request is in its Run.

    A msgspec struct, like everything created per request, because its constructor is in C.
    """

    ledger: Ledger
    admission: Admission
    observer: Observer
    monotonic: Callable[[], float]
    speeds: GenerationSpeeds = msgspec.field(default_factory=GenerationSpeeds)

    async def open(self, run: Run) -> None:
        """Reserves the money, then writes the intent. Raises as `reserve`, or LedgerUnavailable."""
        intent = run.intent
        if self.admission.limits_key(intent.key_id, intent.team, intent.project, intent.end_user):
            await self.admission.reserve(
                intent.request_id,
                intent.key_id,
                self._amount(run, run.candidate) if run.view.is_stream else intent.cost_bound_pico_usd,
                now_us=intent.accepted_at_us,
                team=intent.team,
                project=intent.project,
                end_user=intent.end_user,
                model=self._counted(run).name,
                tokens=run.view.input_tokens,
            )
        try:
            self.ledger.intend(intent)
        except BaseException:
            self.admission.cancel(intent.request_id)
            raise

    def can_pay(self, run: Run, candidate: Candidate) -> bool:
        """Holds enough for the next increment at this candidate, from what this worker has leased."""
        return self.admission.extend(run.intent.request_id, self._amount(run, candidate))

    async def can_go_on(self, run: Run) -> bool:
        """Holds enough for the next increment, leasing more if needed."""
        if self.can_pay(run, run.candidate):
            return True
        await self.admission.fund(run.intent.request_id, self._amount(run, run.candidate))
        return self.can_pay(run, run.candidate)

    async def fund(self, run: Run, candidates: Iterable[Candidate]) -> None:
        """Leases what the most expensive affordable candidate needs, so that `can_pay` has it at hand."""
        if self.has_budget(run):
            for amount in sorted({self._amount(run, one) or 0 for one in candidates}, reverse=True):
                if await self.admission.fund(run.intent.request_id, amount, wait_seconds=0.0):
                    return

    def checkpoint(self, run: Run) -> None:
        """Records how far a stream has come, so that a crash can lose only what follows."""
        self.ledger.checkpoint(checkpoint_of(run.intent, run.candidate, run.meter))

    async def settle(self, run: Run, status: Status, *, http_status: int, error: str | None = None) -> Entry:
        """Books the request once: a second call returns the existing entry."""
        if run.entry is not None:
            return run.entry
        ended_at = self.monotonic()
        outcome = Outcome(
            status=status,
            http_status=http_status,
            candidate=run.candidate,
            attempts=tuple(run.attempts),
            ended_at=ended_at,
            error=error,
            may_have_been_billed=status is not FAILED,
            unseen_tokens=self._unseen(run, status, ended_at),
            extra=run.extra,
        )
        return await self.book(run, settle_entry(run.intent, run.meter, outcome))

    async def book(self, run: Run, entry: Entry) -> Entry:
        """Settles with the given entry."""
        run.entry = entry
        total = entry.cost.total_pico_usd if entry.cost is not None else None
        self.admission.settle(run.intent.request_id, total, model=entry.model)
        try:
            await self.ledger.settle(entry)
        except asyncio.CancelledError:  # the ledger has the entry: only the wait for the disk was cancelled
            self.observer.settled(entry)
            raise
        self.observer.settled(entry)
        return entry

    def _unseen(self, run: Run, status: Status, ended_at: float) -> int:
        """Estimated hidden tokens of a stream without reported usage. Reported usage instead updates its speed."""
        meter, view = run.meter, run.view
        if not view.is_stream:
            return 0
        if meter.usage is None:
            speed = self.speeds.tokens_per_second(run.candidate)
            return unseen_tokens(run.candidate, view, meter, ended_at, speed) if status in BROKEN_OFF else 0
        if meter.sent_at is not None and meter.last_output_at is not None and REASONING in run.candidate.supports:
            self.speeds.note(
                run.candidate, meter.usage.output_tokens / view.choices, meter.last_output_at - meter.sent_at
            )
        return 0

    def has_budget(self, run: Run) -> bool:
        """Whether a budget applies to the caller."""
        intent = run.intent
        return self.admission.has_budget(intent.key_id, team=intent.team, project=intent.project)

    def _counted(self, run: Run) -> Candidate:
        """The model whose rate and quota count the request: its own, or the one it may be escalated to."""
        if run.choice.escalation is None or self.admission.is_counted(run.intent.key_id, run.candidate.name):
            return run.candidate
        return run.choice.escalation.order[0]

    def _amount(self, run: Run, candidate: Candidate) -> int | None:
        """What the budget must hold at a candidate: for a stream of text the next increment, otherwise the most that
        the answer and its escalation can cost; plus what abandoned attempts may have cost."""
        if run.view.is_stream and run.view.most_output_tokens is None:
            amount = increment_pico_usd(candidate, run.view, run.meter.output_characters)
        else:
            amount = cascade_bound_pico_usd(candidate, run.choice, run.view)
        extra = run.extra.estimate_pico_usd
        return None if amount is None or extra is None else amount + extra
