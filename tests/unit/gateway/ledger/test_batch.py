"""Batches are the journal's bytes, unchanged; entries are decoded only when read."""

import random
from typing import Any

import msgspec
import pytest

from gateway.ledger.batch import Batch
from gateway.ledger.journal import ENCODER, Journal
from gateway.ledger.shipper import Shipper
from tests.simulated_disk import SimulatedDisk
from tests.unit.gateway.ledger.builders import make_entry, make_intent, request_id


def test_a_batch_is_a_sequence_of_its_entries() -> None:
    made = [make_entry(number) for number in range(5)]
    batch = Batch.joined([Batch.of(made[:2]), Batch(), Batch.of(made[2:])])
    assert list(batch) == made
    assert (len(batch), batch[-1], batch[1:3], list(reversed(batch))) == (5, made[4], made[1:3], made[::-1])
    assert list(batch.request_ids) == [request_id(number) for number in range(5)]
    assert not Batch()


def test_bytes_that_are_no_entry_hurt_only_who_looks_inside() -> None:
    batch = Batch(["a"], [b"no entry"])
    assert len(batch) == 1
    with pytest.raises(msgspec.DecodeError):
        batch[0]


def test_what_an_older_version_journalled_has_no_tool_calls() -> None:
    made = make_entry(1)
    older = msgspec.msgpack.encode(msgspec.msgpack.decode(ENCODER.encode(made))[:-3])
    [entry] = Batch([request_id(1)], [older])
    assert entry == made
    assert (entry.web_searches, entry.file_searches, entry.other_tool_calls) == (0, 0, 0)


async def test_the_journals_own_bytes_are_shipped_and_nothing_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(content: Any) -> Any:
        raise AssertionError("an entry was decoded on its way to the database")

    journal = Journal(SimulatedDisk(random.Random(1)), on_failure=lambda error: None, segment_bytes=1 << 17)
    for number in range(5):
        journal.intend(make_intent(number))
        await journal.settle(make_entry(number))
    shipped: list[bytes] = []

    class Sink:
        async def insert(self, batch: Batch) -> int:
            shipped.extend(batch.payloads)
            return len(batch)

    class Refusing:
        decode = staticmethod(refuse)

    monkeypatch.setattr("gateway.ledger.batch.DECODER", Refusing)
    assert await Shipper(journal, Sink()).ship_once() == 5
    assert shipped == [ENCODER.encode(make_entry(number)) for number in range(5)]
    await journal.aclose()
