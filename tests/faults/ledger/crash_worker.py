"""A worker that journals and ships until it is killed; prints `a NUMBER` for accepted, `s NUMBER` for settled.

`python -m tests.faults.ledger.crash_worker DIRECTORY DATABASE_URL FIRST_NUMBER`. Ships as the gateway does, by a child
process, when the number's millions are even, else by itself: so the kill meets both, before and within a commit.
"""

import asyncio
import os
import random
import sys
from pathlib import Path

from gateway.errors import LedgerUnavailable
from gateway.ledger.directories import claim_directory
from gateway.ledger.journal import Journal
from gateway.ledger.remote_sink import RemoteSink
from gateway.ledger.shipper import Shipper
from gateway.storage.database import open_database
from gateway.storage.sql.ledger import SqlLedger
from tests.unit.gateway.ledger.builders import make_checkpoint, make_entry, make_intent

IN_FLIGHT = 20


def say(word: str, number: int) -> None:
    """Prints directly to the pipe, so that lines before the kill can be read after it."""
    os.write(1, f"{word} {number}\n".encode())


async def intend(journal: Journal, number: int) -> None:
    """Retries, as callers do: on a busy machine the small segments may fill faster than new ones are created."""
    while True:
        try:
            journal.intend(make_intent(number))
            return
        except LedgerUnavailable:
            await asyncio.sleep(0.01)


async def one_after_another(journal: Journal, numbers: "list[int]", chance: random.Random) -> None:
    while True:
        numbers[0] += 1
        number = numbers[0]
        await intend(journal, number)
        say("a", number)
        await asyncio.sleep(chance.expovariate(300))
        if chance.random() < 0.3:
            journal.checkpoint(make_checkpoint(number))
            await asyncio.sleep(chance.expovariate(300))
        await journal.settle(make_entry(number))
        say("s", number)


async def main(directory: str, database_url: str, first: int) -> None:
    claim = claim_directory(Path(directory))
    journal = Journal.open(claim.path, on_failure=lambda error: os._exit(70), segment_bytes=1 << 19)
    is_remote = first // 1_000_000 % 2 == 0
    sink = RemoteSink(database_url) if is_remote else SqlLedger(open_database(database_url))
    shipper = Shipper(journal, sink)
    numbers, chance = [first], random.Random(first)
    async with asyncio.TaskGroup() as group:
        group.create_task(shipper.run())
        for _ in range(IN_FLIGHT):
            group.create_task(one_after_another(journal, numbers, chance))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
