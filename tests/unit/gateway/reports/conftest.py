"""One made-up month, written once for all tests of this folder."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.cli.demo_month import write_demo_month
from gateway.composition.deployment import load_deployment
from gateway.config.home import Home
from gateway.storage.database import open_database
from gateway.storage.sql.ledger import SqlLedger
from tests.unit.gateway.reports.month import END, NOW_US, REQUESTS, Month


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("month")


@pytest.fixture
async def month(home: Path) -> AsyncIterator[Month]:
    await write_demo_month(Home(home), now=END, requests=REQUESTS)
    deployment = load_deployment(Home(home / "demo"), environ={})
    database = open_database(deployment.database_url)
    entries = [entry async for page in SqlLedger(database).entries(0, 1 << 62) for entry in page]
    snapshot = deployment.catalogue.snapshot(
        deployment.rules, deployment.prices, classifier_version="test", at_us=NOW_US
    )
    yield Month(deployment, database, entries, snapshot)
    await database.dispose()
