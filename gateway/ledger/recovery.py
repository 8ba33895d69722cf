"""What the records of a journal add up to: which requests are open, and how a dead process's are settled. Pure."""

from dataclasses import dataclass

import msgspec

from gateway.ledger.entry import Checkpoint, Entry, Intent, Status
from gateway.ledger.record import Kind, Record


class OpenIntent(msgspec.Struct):
    """An accepted request that is not settled: its records as they were written, and the segment its intent is in."""

    epoch: int
    intent: bytes
    checkpoint: bytes | None = None


class OpenIntents(dict[str, OpenIntent]):
    """By request id. Records may come twice (a carried intent, a replayed segment): the last one counts."""

    def __init__(self) -> None:
        super().__init__()
        self.settled_entries = 0

    def apply(self, record: Record, epoch: int) -> None:
        """Take one record of the segment `epoch` into account, in the order of the journal."""
        match record.kind:
            case Kind.INTENT:
                self[record.request_id] = OpenIntent(epoch, record.payload)
            case Kind.CHECKPOINT:
                if opened := self.get(record.request_id):
                    opened.checkpoint = record.payload
            case Kind.SETTLE:
                self.settle(record.request_id)

    def settle(self, request_id: str) -> None:
        """The request is not open any more."""
        self.settled_entries += 1
        self.pop(request_id, None)


@dataclass(frozen=True, slots=True)
class Recovered:
    """What was found at start: settled entries still to be shipped, the requests that died, damaged bytes dropped,
    whole records kept that stood behind them."""

    settled_entries: int
    orphans: tuple[str, ...]
    discarded_bytes: int
    rescued_records: int


def settle_orphan(opened: OpenIntent) -> Entry:
    """The entry of a request whose process died: what it cost is not known, only between what bounds it lies.

    At least what the last checkpoint says, or nothing; at most the intent's bound, or unknown where it has none.
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
