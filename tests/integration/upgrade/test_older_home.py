"""An older version's home is taken over by this one: schema, journal, keys and rules work, and all sums are equal."""

import asyncio
import json
import shutil
import tarfile
import threading
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from gateway.clock import now_us
from gateway.composition.deployment import load_deployment
from gateway.composition.running import Gateway
from gateway.composition.wiring import open_gateway
from gateway.config.home import Home
from gateway.errors import StateError
from gateway.ledger.entry import Status
from gateway.ledger.journal import SEGMENT_BYTES
from gateway.storage.database import migrate, open_database
from gateway.storage.sql.ledger import SqlLedger
from gateway.storage.sums.verification import verify_sums
from gateway.sums import SumsQuery
from tests.integration.upgrade.make_home import ENTRIES, SUMS, rows
from tests.postgres_server import empty_postgres
from tests.waiting import PATIENCE_SECONDS, until

pytestmark = pytest.mark.integration
VERSIONS = sorted(path.name for path in Path(__file__).parent.glob("*.tar.xz"))
EVERYTHING = SumsQuery(0, 2**60, ())
Expected = Mapping[str, Any]


@pytest.fixture(params=VERSIONS)
def older(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Home, Expected]:
    """The home as left by the killed process, and what that version itself made of it at its next start."""
    with tarfile.open(Path(__file__).with_name(request.param)) as packed:
        packed.extraction_filter = getattr(tarfile, "data_filter", None)  # Debian's Python 3.11.2 has none yet
        packed.extractall(tmp_path)
    for segment in tmp_path.rglob("*.seg"):
        with segment.open("r+b") as file:
            file.truncate(SEGMENT_BYTES)
    return Home(tmp_path), json.loads((tmp_path / "expected.json").read_bytes())


@asynccontextmanager
async def lives(home: Home, *, database: str | None = None) -> AsyncGenerator[Gateway]:
    """Starts on the home, ships its journal, and stops again, like `breakeven serve`."""
    deployment = load_deployment(home, environ={})
    settings = deployment.settings.model_copy(update={"database": database})
    gateway = await open_gateway(replace(deployment, settings=settings))
    try:
        await gateway.start()
        # A start waits twenty seconds for its writer, and then continues.
        await until(lambda: not gateway.shipper.gauges()["unshipped_entries"])
        yield gateway
    finally:
        await gateway.stop()


async def test_everything_is_booked_as_that_version_would_have(older: tuple[Home, Expected]) -> None:
    home, expected = older
    assert rows(home.root, "SELECT version_num FROM alembic_version") == [(expected["revision"],)]
    assert rows(home.root, "SELECT count(*) FROM entries")[0][0] < len(expected["entries"]), (
        "some are in the journal alone"
    )
    async with lives(home) as gateway:
        [sums] = await gateway.stores.reports.sums(EVERYTHING)
        assert sums.requests == len(expected["entries"])
        days = [day async for day in verify_sums(gateway.database, 0, 2**60)]
    assert sum(day.requests for day in days) == len(expected["entries"])
    assert [day for day in days if day.mismatches] == []
    assert [list(row) for row in rows(home.root, ENTRIES)] == expected["entries"]
    for table in ("hourly", "daily"):
        assert list(rows(home.root, SUMS.replace("hourly", table))[0]) == expected["sums"]
    async with lives(home):
        assert [list(row) for row in rows(home.root, ENTRIES)] == expected["entries"], "a second start adds nothing"


async def test_its_keys_and_rules_are_in_force_and_its_decisions_can_be_read(older: tuple[Home, Expected]) -> None:
    home, expected = older
    async with lives(home) as gateway:
        found = {name: gateway.key_ring.authenticate(key, now_us()) for name, key in expected["keys"].items()}
        assert {name: record.role for name, record in found.items()} == {"owner": "owner", "app": "app", "blue": "app"}
        assert found["blue"].team == "blue"
        assert [rule.name for rule in gateway.document.rules] == ["blue", "all"]
        entries = [entry async for page in SqlLedger(gateway.database).entries(0, 2**60) for entry in page]
        assert {entry.intent.decision.rule for entry in entries} == {"blue", "all"}
        answered = [(one, entry) for entry in entries for one in entry.attempts]
        assert len(answered) == len(entries) - 1
        assert all(0 < one.lasted_seconds <= entry.total_seconds + 0.001 for one, entry in answered)
        [orphan] = [entry for entry in entries if entry.status is Status.orphaned]
        assert orphan.cost is None
        assert orphan.cost_upper_pico_usd


async def test_its_journal_is_shipped_to_a_database_of_another_kind(
    older: tuple[Home, Expected], postgres_directory: str
) -> None:
    home, expected = older
    url = await empty_postgres(postgres_directory)
    async with lives(home, database=url) as gateway:
        [sums] = await gateway.stores.reports.sums(EVERYTHING)
        assert sums.requests == len(expected["entries"]), "its segment is still there whole"


def driver_threads() -> set[threading.Thread]:
    """The threads of aiosqlite, one per open connection."""
    return {one for one in threading.enumerate() if "connection_worker" in one.name}


async def test_a_home_of_a_version_to_come_is_refused_and_left_as_it_is(
    older: tuple[Home, Expected], tmp_path: Path
) -> None:
    home, _ = older
    await migrate(home.database_url)
    engine = open_database(home.database_url)
    async with engine.begin() as connection:
        await connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    await engine.dispose()
    before = driver_threads()
    journal = shutil.copytree(home.journal_directory, tmp_path / "kept")
    with pytest.raises(StateError, match=r"newer Breakeven .*start that version or a newer one, or restore the backup"):
        await open_gateway(load_deployment(home, environ={}))
    for thread in driver_threads() - before:
        await asyncio.to_thread(thread.join, PATIENCE_SECONDS)
        assert not thread.is_alive(), "a connection to the database is left open"
    for segment in journal.rglob("*.seg"):
        assert segment.read_bytes() == (home.journal_directory / segment.relative_to(journal)).read_bytes()
