"""Settled entries on their way to the database: the journal's bytes, decoded only when an entry is read.

The gateway ships through a child process (remote_sink.py), so the serving thread never pays for decoding.
"""

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import overload

import msgspec

from gateway.ledger.entry import Entry

DECODER = msgspec.msgpack.Decoder(Entry)
ENCODER = msgspec.msgpack.Encoder()


class Batch(Sequence[Entry]):
    """Entries in the order they were settled. Reading one raises msgspec.DecodeError if its bytes are not an entry."""

    def __init__(self, request_ids: Sequence[str] = (), payloads: Sequence[bytes] = ()) -> None:
        self.request_ids = request_ids
        self.payloads = payloads

    @classmethod
    def of(cls, entries: Sequence[Entry]) -> "Batch":
        """Encodes `entries` as a batch."""
        return cls([entry.intent.request_id for entry in entries], [ENCODER.encode(entry) for entry in entries])

    @classmethod
    def joined(cls, batches: Iterable["Batch"]) -> "Batch":
        """Concatenates batches, in order."""
        request_ids: list[str] = []
        payloads: list[bytes] = []
        for batch in batches:
            request_ids += batch.request_ids
            payloads += batch.payloads
        return cls(request_ids, payloads)

    def last(self) -> "Batch":
        """A batch of the last entry only; empty if this one is."""
        return Batch(self.request_ids[-1:], self.payloads[-1:])

    @cached_property
    def _entries(self) -> list[Entry]:
        return [DECODER.decode(payload) for payload in self.payloads]

    def __len__(self) -> int:
        return len(self.payloads)

    @overload
    def __getitem__(self, at: int) -> Entry: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Entry]: ...
    def __getitem__(self, at: int | slice) -> Entry | Sequence[Entry]:
        return self._entries[at]
