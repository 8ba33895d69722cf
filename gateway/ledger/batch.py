"""Settled entries on their way to the database: bytes as the journal holds them, decoded only for who looks inside.

The gateway ships through a child process (remote_sink.py): what takes no look inside costs the serving thread nothing.
"""

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import overload

import msgspec

from gateway.ledger.entry import Entry

DECODER = msgspec.msgpack.Decoder(Entry)
ENCODER = msgspec.msgpack.Encoder()


class Batch(Sequence[Entry]):
    """Entries in the order in which they were settled. Reading one raises msgspec.DecodeError if its bytes are none."""

    def __init__(self, request_ids: Sequence[str] = (), payloads: Sequence[bytes] = ()) -> None:
        self.request_ids = request_ids
        self.payloads = payloads

    @classmethod
    def of(cls, entries: Sequence[Entry]) -> "Batch":
        """The batch of entries at hand."""
        return cls([entry.intent.request_id for entry in entries], [ENCODER.encode(entry) for entry in entries])

    @classmethod
    def joined(cls, batches: Iterable["Batch"]) -> "Batch":
        """One batch of several, in their order."""
        request_ids: list[str] = []
        payloads: list[bytes] = []
        for batch in batches:
            request_ids += batch.request_ids
            payloads += batch.payloads
        return cls(request_ids, payloads)

    def last(self) -> "Batch":
        """Its last entry alone."""
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
