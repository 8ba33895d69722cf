"""One turn of every fault of a fleet; `python -m tests.faults.fleet.chaos` goes on for as long as it is told."""

from pathlib import Path

import pytest

from tests.faults.fleet.chaos.faults import KINDS
from tests.faults.fleet.chaos.run import run_chaos
from tests.redis_server import RedisServer

pytestmark = [pytest.mark.faults, pytest.mark.integration]


async def test_whatever_dies_or_stands_still_the_books_hold_what_callers_were_told(
    postgres_directory: str, redis_server: RedisServer, tmp_path: Path
) -> None:
    verdict = await run_chaos(tmp_path, postgres_directory, redis_server, seed=7)
    assert verdict.broken_promises == []
    assert set(verdict.faults.done) == set(KINDS)
    assert verdict.told.answers
    assert verdict.told.broken, "nothing was under way when a replica died"
    assert verdict.entries > len(verdict.told.answers), "nothing was refused, left or cut"
