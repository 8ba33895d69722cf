"""The sums equal what the journal's records add up to, recomputed with fractions, whatever happens during shipping."""

import random
from collections import defaultdict
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Table, select
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.instants import HOUR_US
from gateway.ledger.batch import DECODER
from gateway.ledger.entry import Entry
from gateway.ledger.record import Framing, Kind
from gateway.ledger.shipper import Shipper
from gateway.storage.sql.ledger import SqlLedger
from gateway.storage.tables.books import daily, dimensions, entries, hourly
from tests.integration.storage.booked import PARTS, random_entry
from tests.unit.gateway.ledger.journals import open_journal

pytestmark = pytest.mark.integration
PATIENCE_SECONDS = 120
REQUESTS = 400
GROUP = ("provider", "upstream_model", "team", "status")
Books = dict[tuple[Any, ...], dict[str, Fraction]]


def records(directory: Path) -> Iterator[Entry]:
    """Every settlement ever written, each once."""
    found: dict[str, Entry] = {}
    for path in sorted(directory.glob("*.seg")):
        for record in Framing().scan(int(path.stem), path.read_bytes()):
            if record.kind is Kind.SETTLE:
                found[record.request_id] = DECODER.decode(record.payload)
    yield from found.values()


def recomputed(settled: list[Entry], hours: int) -> Books:
    """Sums by periods of this many hours and by group; an attempt on another bill counts for that provider."""
    books: Books = defaultdict(lambda: defaultdict(Fraction))
    for one in settled:
        at = one.intent.accepted_at_us // (hours * HOUR_US)
        own = books[at, one.provider, one.upstream_model, one.intent.team, str(one.status)]
        own["requests"] += 1
        own["unpriced_requests"] += one.cost is None
        own["input_tokens"] += one.input_tokens
        own["output_tokens"] += one.output_tokens
        if one.cost is None:
            continue
        own["cost"] += sum(Fraction(getattr(one.cost, part)) for part in PARTS)
        for attempt in one.attempts:
            if attempt.paid_to is not None and attempt.cost_pico_usd:
                paid = attempt.paid_to
                own["cost"] -= attempt.cost_pico_usd
                books[at, paid.provider, paid.upstream_model, one.intent.team, str(one.status)]["cost"] += (
                    attempt.cost_pico_usd
                )
    return _without_nothing(books)


async def read(engine: AsyncEngine, table: Table) -> Books:
    unit = table.columns[0]
    groups = [dimensions.c[name] for name in GROUP]
    query = select(unit, *groups, table).join(dimensions, dimensions.c.id == table.c.dimension_id)
    books: Books = defaultdict(lambda: defaultdict(Fraction))
    async with engine.connect() as connection:
        for row in (await connection.execute(query)).mappings():
            sums = books[(row[unit], *(row[column] for column in groups))]
            for name in ("requests", "unpriced_requests", "input_tokens", "output_tokens"):
                sums[name] += row[table.c[name]]
            sums["cost"] += sum(row[table.c[part]] for part in PARTS)
    return _without_nothing(books)


def _without_nothing(books: Books) -> Books:
    some = {key: {name: value for name, value in sums.items() if value} for key, sums in books.items()}
    return {key: sums for key, sums in some.items() if sums}


@pytest.mark.parametrize("seed", range(2))
async def test_sums_are_what_the_journals_records_add_up_to(engine: AsyncEngine, tmp_path: Path, seed: int) -> None:
    chance, ledger = random.Random(seed), SqlLedger(engine)
    journal = open_journal(tmp_path, segment_bytes=1 << 21)
    for number in range(REQUESTS):
        entry = random_entry(chance, number)
        journal.intend(entry.intent)
        if chance.random() < 0.97:  # otherwise it is an orphan at the next start
            await journal.settle(entry)
        if chance.random() < 0.02:
            await Shipper(journal, ledger).ship_once()
        if chance.random() < 0.02:
            await journal.aclose()
            journal = open_journal(tmp_path, segment_bytes=1 << 21)
    await journal.aclose()
    journal = open_journal(tmp_path, segment_bytes=1 << 21)
    assert await Shipper(journal, ledger).drain(PATIENCE_SECONDS)
    await journal.aclose()
    settled = list(records(tmp_path))
    assert len(settled) == REQUESTS
    async with engine.connect() as connection:
        assert len((await connection.execute(select(entries.c.request_id))).all()) == REQUESTS
    assert await read(engine, hourly) == recomputed(settled, 1)
    assert await read(engine, daily) == recomputed(settled, 24)
