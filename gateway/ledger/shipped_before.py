"""Finds the part of a journal that must not be shipped again at start: an earlier process did, and it is old. Pure.

The database may have deleted it since (`retention`) and would book it twice. Younger entries are shipped again, in case
the database lost them: it may have been restored from a backup, or failed over to a replica.
"""

import msgspec

from gateway.instants import HOUR_US
from gateway.ledger.record import Kind, Record
from gateway.ledger.segments import Position

SURELY_KEPT_US = 86_400_000_000
"""No database deletes a request younger than this: `requests_days` is at least 1."""


class _Accepted(msgspec.Struct, array_like=True):
    """The first fields of an intent."""

    request_id: str
    accepted_at_us: int


class _Settled(msgspec.Struct, array_like=True):
    """The first field of an entry."""

    intent: _Accepted


SETTLED = msgspec.msgpack.Decoder(_Settled)


def is_young(accepted_at_us: int, now_us: int, *, young_us: int = SURELY_KEPT_US) -> bool:
    """Whether no database has deleted it yet. What seems to come from the future may be of any age: it is the clock
    that is behind, as after a start without a battery for it."""
    return -HOUR_US <= now_us - accepted_at_us <= young_us


def accepted_at_us(payload: bytes) -> int:
    """When the request of a SETTLE record was accepted."""
    return SETTLED.decode(payload).intent.accepted_at_us


class ShippedBefore:
    """After every record is applied in journal order, `end` is where shipping begins and `entries` come before it."""

    def __init__(self, now_us: int) -> None:
        self._now_us = now_us
        self._end: Position | None = None
        self._entries = 0
        self._is_past = False
        self._is_note_ours = False

    def apply(self, record: Record, epoch: int, noted: Position) -> None:
        here = Position(epoch, record.end)
        self._is_note_ours |= here == noted
        self._is_past = self._is_past or here > noted or self._is_young(record)
        if not self._is_past:
            self._end = here
            self._entries += record.kind is Kind.SETTLE

    @property
    def end(self) -> Position | None:
        """None: ship from the start, also if the note belongs to another journal, as no record ends where it says."""
        return self._end if self._is_note_ours else None

    @property
    def entries(self) -> int:
        return self._entries if self._is_note_ours else 0

    def _is_young(self, record: Record) -> bool:
        return record.kind is Kind.SETTLE and is_young(accepted_at_us(record.payload), self._now_us)
