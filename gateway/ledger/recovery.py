"""Which requests a journal's records leave open, and how those of a dead process are settled. Pure."""

from dataclasses import dataclass

import msgspec

from gateway.ledger.entry import Checkpoint, Entry, Intent, Status
from gateway.ledger.record import Kind, Record


class OpenIntent(msgspec.Struct):
    """An accepted request not yet settled: its records as written, and the epoch of the segment its intent is in."""

    epoch: int
    intent: bytes
    checkpoint: bytes | None = None


class OpenIntents(dict[str, OpenIntent]):
    """Open requests by id. Records may come twice (a carried intent, a replayed segment): the last one counts."""

    def __init__(self) -> None:
        super().__init__()
        self.settled_entries = 0

    def apply(self, record: Record, epoch: int) -> None:
        """Apply one record of segment `epoch`. Call in journal order."""
        match record.kind:
            case Kind.INTENT:
                self[record.request_id] = OpenIntent(epoch, record.payload)
            case Kind.CHECKPOINT:
                if opened := self.get(record.request_id):
                    opened.checkpoint = record.payload
            case Kind.SETTLE:
                self.settle(record.request_id)

    def settle(self, request_id: str) -> None:
        """The request is no longer open."""
        self.settled_entries += 1
        self.pop(request_id, None)


@dataclass(frozen=True, slots=True)
class Recovered:
    """What was found at start: settled entries still to ship, ids of orphaned requests, damaged bytes dropped, and
    whole records rescued from behind the damage."""

    settled_entries: int
    orphans: tuple[str, ...]
    discarded_bytes: int
    rescued_records: int


def settle_orphan(opened: OpenIntent) -> Entry:
    """The entry of a request whose process died: its cost is unknown, only bounded.

    The lower bound is the last checkpoint's cost, or zero; the upper is the intent's bound, None if it has none.
    """
    intent = msgspec.msgpack.decode(opened.intent, type=Intent)
    last = msgspec.msgpack.decode(opened.checkpoint, type=Checkpoint) if opened.checkpoint else None
    lower = last.cost_so_far_pico_usd if last else None
    return Entry(
        intent=intent,
        status=Status.orphaned,
        model=intent.decision.model,
        backend=intent.backend,
        provider=intent.provider,
        upstream_model=intent.upstream_model,
        input_tokens=intent.decision.facts.input_tokens,
        cached_input_tokens=0,
        cache_write_5m_tokens=0,
        cache_write_1h_tokens=0,
        output_tokens=last.output_tokens if last else 0,
        reasoning_tokens=0,
        is_usage_estimated=True,
        is_simulated=intent.is_simulated,
        service_tier=None,
        cost=None,
        cost_lower_pico_usd=lower or 0,
        cost_upper_pico_usd=intent.cost_bound_pico_usd,
        gpu_seconds=0.0,
        queue_seconds=None,
        time_to_first_token_seconds=None,
        prefill_tokens_per_second=None,
        decode_tokens_per_second=None,
        total_seconds=0.0,
        finish_reason=None,
        http_status=0,  # nobody knows whether anything was sent
        error="ProcessDied",
        attempts=(),
    )
