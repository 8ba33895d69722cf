"""`/readyz`: if the journal accepts nothing, load balancers must stop sending requests."""

import asyncio
from pathlib import Path

import pytest
from sqlalchemy import text

from gateway.composition.deployment import load_deployment
from gateway.composition.wiring import open_gateway
from gateway.ledger.sync_pace import OF_LATE
from gateway.process.tasks import end_tasks
from gateway.storage.database import writing
from tests.homes import new_home

pytestmark = pytest.mark.integration


async def test_a_journal_that_takes_nothing_is_a_problem(tmp_path: Path) -> None:
    home = new_home(tmp_path)
    gateway = await open_gateway(load_deployment(home, environ={}))
    try:
        others = gateway.problems()
        await gateway.journal.aclose()
        assert gateway.problems() == [*others, "The journal is closed."]
    finally:
        await gateway.stop()


async def test_a_database_that_lost_its_tables_is_a_warning_and_models_are_served(tmp_path: Path) -> None:
    home = new_home(tmp_path)
    with home.config_file.open("a") as file:
        file.write("shadow_calls: {share: 0.02, judge: gpt-nope}\n")
    gateway = await open_gateway(load_deployment(home, environ={}))
    watching = asyncio.create_task(gateway.watch.run())
    try:
        async with writing(gateway.database) as connection:
            await connection.execute(text("DROP TABLE audit_log"))
        while not gateway.watch.is_blind:
            await asyncio.sleep(0.05)
        assert any("keys and rules cannot be read" in warning for warning in gateway.warnings())
        assert not any("database" in problem for problem in gateway.problems())
        for _ in range(OF_LATE):
            gateway.journal.commits.pace.took(0.25)
        assert any("disk is slow: a sync takes 250 ms" in warning for warning in gateway.warnings())
        assert any("there is no model 'gpt-nope' here now" in warning for warning in gateway.warnings())
        gateway.budgets.is_down = True
        assert any("Redis cannot be used: keys with a budget are refused" in warning for warning in gateway.warnings())
    finally:
        await end_tasks([watching])
        await gateway.stop()
