"""`breakeven migrate --to`: reports what an older schema cannot hold, and deletes nothing until told to."""

import asyncio
import json
from pathlib import Path

import pytest
from sqlalchemy import insert, text
from typer.testing import CliRunner

from classifier.predictions import Places, Predictions
from gateway.cli import build
from gateway.cli.migrate import ELSEWHERE
from gateway.config.home import Home
from gateway.errors import StateError
from gateway.process.sole_use import sole_use
from gateway.storage.database import LATER_LOCK, lock, migrate, open_database, writing
from gateway.storage.revisions import present_revision
from gateway.storage.schema import revisions
from gateway.storage.sql.keys import SqlKeyStore
from gateway.storage.sql.ledger import SqlLedger
from gateway.storage.tables.administration import budgets, gpu_rents
from gateway.stores import NewKey
from tests.homes import new_home
from tests.newest_schema import make_newest
from tests.unit.gateway.ledger.builders import make_decision, make_entry, make_facts, make_intent

pytestmark = pytest.mark.integration
NEWEST = revisions()[-1].number
OLDEST = revisions()[0].number


@pytest.fixture
def home(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    home = new_home(tmp_path / "home")
    monkeypatch.setenv("BREAKEVEN_HOME", str(home.root))
    monkeypatch.setenv("BREAKEVEN_DATABASE_URL", database_url)
    return home


async def said(*arguments: str) -> str:
    """Runs the command and returns its output; raises its own errors."""

    def run() -> str:
        return CliRunner().invoke(build("migrate"), ["migrate", *arguments], catch_exceptions=False).output

    return await asyncio.to_thread(run)


async def fill(url: str) -> None:
    await make_newest(url)
    engine = open_database(url)
    await SqlLedger(engine).insert([make_entry(1), make_entry(2, web_searches=3)])
    async with writing(engine) as connection:
        await connection.execute(insert(gpu_rents).values(backend="local", from_hour=1, provider="x", hour_pico_usd=2))
        for name, stops in (("red", True), ("blue", False)):
            values = {"scope": "team", "name": name, "month_pico_usd": 5, "set_by": "x", "set_at_us": 0, "stops": stops}
            await connection.execute(insert(budgets).values(values))
    await engine.dispose()


async def seen(url: str) -> tuple[str | None, int, int]:
    """(revision, number of entries, number of requests in the hourly sums)."""
    engine = open_database(url)
    try:
        async with engine.connect() as connection:
            counts = [
                (await connection.execute(text(query))).scalar_one()
                for query in ("SELECT count(*) FROM entries", "SELECT sum(requests) FROM hourly")
            ]
            return await connection.run_sync(present_revision), *counts
    finally:
        await engine.dispose()


async def scalar(url: str, query: str) -> int:
    engine = open_database(url)
    async with engine.connect() as connection:
        found = (await connection.execute(text(query))).scalar_one()
    await engine.dispose()
    return found


@pytest.mark.usefixtures("home")
async def test_what_would_be_lost_is_said_and_kept_until_it_is_told_to_go(database_url: str) -> None:
    await fill(database_url)
    told = await said("--to", "0007")
    lost = told.partition("in how many rows:\n")[2].splitlines()
    assert sorted(lost[:-1]) == [
        "  budgets.stops  1",
        "  daily.web_searches  1",
        "  entries.web_searches  1",
        "  gpu_rents  1",
        "  hourly.web_searches  1",
    ]
    assert lost[-1].startswith("Nothing was changed yet.")
    assert await seen(database_url) == (NEWEST, 2, 2)
    assert json.loads(await said("--to", "0007", "--json"))["is_done"] is False

    assert "Start the older version now" in await said("--to", "0007", "--yes")
    assert await seen(database_url) == ("0007", 2, 2)
    assert await said() == f"The schema is {NEWEST} now; it was 0007.\n"
    assert await said() == f"The schema is {NEWEST} already.\n"
    assert await seen(database_url) == (NEWEST, 2, 2)


@pytest.mark.usefixtures("home")
async def test_all_the_way_back_and_up_again(database_url: str) -> None:
    await fill(database_url)
    await said("--to", OLDEST, "--yes")
    assert await seen(database_url) == (OLDEST, 2, 2)
    await said()
    assert await seen(database_url) == (NEWEST, 2, 2)


@pytest.mark.parametrize(("column", "back_to"), [("predicted_models", "0025"), ("allowed_models", "0005")])
@pytest.mark.usefixtures("home")
async def test_what_entries_lost_on_the_way_back_is_no_later_entrys(
    database_url: str, column: str, back_to: str
) -> None:
    predictions = Predictions(Places({"a": 0}, {"a": 0}).packed, (5000,), (10,))
    facts = make_facts(predictions=predictions) if column == "predicted_models" else make_facts()
    decision = make_decision(facts=facts)

    async def book(number: int) -> None:
        engine = open_database(database_url)
        await SqlLedger(engine).insert(
            [make_entry(number, intent=make_intent(number, decision=decision, allowed_models=("a",)))]
        )
        await engine.dispose()

    await make_newest(database_url)
    await book(1)
    await migrate(database_url, back_to)
    await migrate(database_url)
    await book(2)
    joined = f"entries JOIN circumstances ON circumstances.id = circumstance_id WHERE {column} IS"
    assert await scalar(database_url, f"SELECT count(*) FROM {joined} NULL") == 1
    assert await scalar(database_url, f"SELECT count(*) FROM {joined} NOT NULL") == 1


@pytest.mark.usefixtures("home")
async def test_what_a_step_leaves_for_later_is_done_by_the_command(database_url: str) -> None:
    await fill(database_url)
    await migrate(database_url, "0018")
    await said()
    assert await scalar(database_url, "SELECT count(*) FROM hourly WHERE ranked <> requests") == 0
    assert await scalar(database_url, "SELECT count(*) FROM state") == 0


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
async def test_what_a_gateway_does_already_is_left_to_it(database_url: str) -> None:
    await fill(database_url)
    await migrate(database_url, "0018")
    engine = open_database(database_url)
    async with engine.begin() as gateway:
        await lock(gateway, LATER_LOCK)
        assert (await said()).endswith(f"{ELSEWHERE}\n")
    await engine.dispose()
    assert await scalar(database_url, "SELECT count(*) FROM hourly WHERE ranked = 0") > 0


@pytest.mark.usefixtures("home")
async def test_a_lead_whom_the_older_version_does_not_know_is_revoked_there(database_url: str) -> None:
    await make_newest(database_url)
    engine = open_database(database_url)
    keys = SqlKeyStore(engine, b"pepper")
    for role in ("lead", "viewer"):
        await keys.create(NewKey(role, role=role, team="red"), author="test")
    await said("--to", "0011", "--yes")
    await said()
    found = {one.record.name: one.record for one in await keys.list()}
    await engine.dispose()
    assert found["lead"].revoked_at_us is not None
    assert (found["viewer"].role, found["viewer"].revoked_at_us) == ("viewer", None)


async def test_not_under_a_gateway_that_serves(home: Home, database_url: str) -> None:
    await fill(database_url)
    with sole_use(home.lock_file, of="it", advice=""):
        with pytest.raises(StateError, match="stop it, and every other replica"):
            await said("--to", OLDEST, "--yes")
        assert "Nothing was changed yet" in await said("--to", OLDEST)
    assert (await seen(database_url))[0] == NEWEST


@pytest.mark.usefixtures("home")
async def test_what_this_version_does_not_know_is_refused(database_url: str) -> None:
    await make_newest(database_url)
    with pytest.raises(StateError, match=f"this version knows {OLDEST} to {NEWEST}"):
        await said("--to", "9999")
    engine = open_database(database_url)
    async with engine.begin() as connection:
        await connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    await engine.dispose()
    with pytest.raises(StateError, match="of a newer Breakeven"):
        await said("--to", OLDEST, "--yes")
