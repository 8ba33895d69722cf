"""The writer process: the same rows, the same errors, and it ends with its parent."""

import asyncio
import os
import signal
from pathlib import Path

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.ledger.batch import Batch
from gateway.ledger.remote_sink import INSERT_SECONDS, RemoteSink, SinkFailed
from gateway.storage.postgres import Patience
from gateway.storage.sql.ledger import SqlLedger
from tests.unit.gateway.ledger.builders import make_entry, request_id

pytestmark = pytest.mark.integration


async def test_rows_arrive_once_also_when_the_writer_is_killed(engine: AsyncEngine, database_url: str) -> None:
    sink = RemoteSink(database_url)
    assert await sink.insert(Batch.of([make_entry(n) for n in range(100)])) == 100
    assert await sink.insert(Batch.of([make_entry(n) for n in range(50, 150)])) == 50
    assert sink.process_id is not None
    os.kill(sink.process_id, signal.SIGKILL)
    with pytest.raises(SinkFailed):
        await sink.insert(Batch.of([make_entry(n) for n in range(150, 160)]))
    assert await sink.insert(Batch.of([make_entry(n) for n in range(140, 160)])) == 10
    assert await SqlLedger(engine).get(request_id(155)) == make_entry(155)
    await sink.aclose()


async def test_the_databases_error_comes_back_and_the_writer_goes_on(engine: AsyncEngine, database_url: str) -> None:
    sink = RemoteSink(database_url)
    async with engine.begin() as connection:
        await connection.exec_driver_sql("ALTER TABLE daily RENAME TO elsewhere")
    with pytest.raises(SinkFailed, match="daily"):
        await sink.insert(Batch.of([make_entry(1)]))
    async with engine.begin() as connection:
        await connection.exec_driver_sql("ALTER TABLE elsewhere RENAME TO daily")
    assert await sink.insert(Batch.of([make_entry(1)])) == 1
    await sink.aclose()


def test_the_writer_gives_up_a_statement_before_it_is_given_up_itself() -> None:
    """Killed while it waited for a lock, it left a connection that went on waiting, and so did each next one."""
    patience = Patience()
    assert patience.statement_seconds is not None
    assert patience.connect_seconds + patience.statement_seconds < INSERT_SECONDS


async def test_the_writer_ends_with_its_input(database_url: str) -> None:
    sink = RemoteSink(database_url)
    with pytest.raises(SinkFailed):
        await sink.insert(Batch.of([make_entry(1)]))  # no tables there
    child = sink._child  # pyright: ignore[reportPrivateUsage]
    assert child is not None
    assert child.stdin is not None
    child.stdin.close()
    assert await asyncio.wait_for(child.wait(), 60) == 0


@pytest.mark.skipif(
    not Path("/proc/self/environ").exists(),
    reason="no /proc here to read a child's environment from: run this on Linux, as CI does",
)
async def test_the_writer_has_the_environment_that_it_was_given(database_url: str) -> None:
    given = {name: value for name, value in os.environ.items() if "KEY" not in name} | {"GIVEN_TO_IT": "x"}
    sink = RemoteSink(database_url, environment=given)
    with pytest.raises(SinkFailed):
        await sink.insert(Batch.of([make_entry(1)]))  # no tables there
    names = {line.partition(b"=")[0].decode() for line in environment_of(sink.process_id).split(b"\0") if line}
    assert "GIVEN_TO_IT" in names
    assert names <= given.keys()
    await sink.aclose()


def environment_of(process_id: int | None) -> bytes:
    return Path(f"/proc/{process_id}/environ").read_bytes()
