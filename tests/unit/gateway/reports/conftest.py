"""One synthetic month, written once for all tests of this folder."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.cli.demo.month import write_demo_month
from gateway.composition.deployment import Deployment, load_deployment
from gateway.config.home import Home
from gateway.ledger.entry import Entry
from gateway.storage.database import open_database
from gateway.storage.sql.ledger import SqlLedger
from tests.unit.gateway.reports.month import END, NOW_US, REQUESTS, Month


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("month")


@pytest.fixture(scope="session")
def written(home: Path) -> tuple[Deployment, list[Entry]]:
    async def entries(url: str) -> list[Entry]:
        await write_demo_month(Home(home), now=END, requests=REQUESTS)
        database = open_database(url)
        found = [entry async for page in SqlLedger(database).entries(0, 1 << 62) for entry in page]
        await database.dispose()
        return found

    found = asyncio.run(entries(f"sqlite+aiosqlite:///{home / 'demo' / 'breakeven.db'}"))
    return load_deployment(Home(home / "demo"), environ={}), found


@pytest.fixture
async def month(written: tuple[Deployment, list[Entry]]) -> AsyncIterator[Month]:
    deployment, entries = written
    database = open_database(deployment.database_url)
    snapshot = deployment.catalogue.snapshot(
        deployment.rules, deployment.prices, classifier_version="test", at_us=NOW_US
    )
    yield Month(deployment, database, entries, snapshot)
    await database.dispose()
