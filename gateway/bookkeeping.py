"""One request's place in the books: money held, intent written, checkpoints, and exactly one settlement."""

from collections.abc import Callable
from dataclasses import dataclass

from backends.errors import UpstreamTimeout
from gateway.admission import Admission
from gateway.ledger.entry import Entry, Ledger, Status
from gateway.routing.snapshot import Candidate
from gateway.run import Observer, Run
from gateway.settlement import Outcome, bound_pico_usd, checkpoint_of, increment_pico_usd, settle_entry


@dataclass(frozen=True, slots=True)
class Bookkeeper:
    """Holds no state of its own: what a request has come to stands in its Run."""

    ledger: Ledger
    admission: Admission
    observer: Observer
    monotonic: Callable[[], float]

    def open(self, run: Run) -> None:
        """Hold its money, then write its intent. Raises BudgetExhausted or LedgerUnavailable, and holds nothing."""
        intent = run.intent
        amount = self._amount(run, run.candidate)
        self.admission.reserve(intent.request_id, intent.key_id, amount, now_us=intent.accepted_at_us)
        try:
            self.ledger.intend(intent)
        except BaseException:
            self.admission.settle(intent.request_id, 0)
            raise

    def can_pay(self, run: Run, candidate: Candidate) -> bool:
        """Whether the money held, or more that can be, is enough for the next increment at this candidate."""
        return self.admission.extend(run.intent.request_id, self._amount(run, candidate))

    def checkpoint(self, run: Run) -> None:
        """Note how far a stream has come, so that a crash can lose no more than what follows."""
        self.ledger.checkpoint(checkpoint_of(run.intent, run.candidate, run.meter))

    async def settle(self, run: Run, status: Status, *, http_status: int, error: str | None = None) -> Entry:
        """Book it, once: whoever comes second finds the entry already made."""
        if run.entry is not None:
            return run.entry
        outcome = Outcome(
            status=status,
            http_status=http_status,
            candidate=run.candidate,
            attempts=tuple(run.attempts),
            ended_at=self.monotonic(),
            error=error,
            may_have_been_billed=status is Status.cancelled
            or any(attempt.outcome == UpstreamTimeout.__name__ for attempt in run.attempts),
        )
        run.entry = settle_entry(run.intent, run.meter, outcome)
        cost = run.entry.cost
        self.admission.settle(run.intent.request_id, cost.total_pico_usd if cost is not None else None)
        await self.ledger.settle(run.entry)
        self.observer.settled(run.entry)
        return run.entry

    def _amount(self, run: Run, candidate: Candidate) -> int | None:
        """What the budget must hold at a candidate: all of a whole answer, of a stream its next increment."""
        if run.view.is_stream:
            return increment_pico_usd(candidate, run.view, run.meter.output_characters)
        return bound_pico_usd(candidate, run.view)
