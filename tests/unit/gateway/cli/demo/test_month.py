"""The month that `breakeven demo --month` makes up reads like one."""

import asyncio
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest

from gateway.cli.demo.month import run_month, write_demo_month
from gateway.cli.demo.traffic import hourly_loads
from gateway.cli.state import open_state
from gateway.config.home import Home
from gateway.instants import DAY_US
from gateway.storage.sql.audit import SqlAuditLog
from tests.unit.gateway.cli.conftest import NOW


async def test_who_spends_was_there_before_and_the_audit_log_runs_forwards(month: Path) -> None:
    begin_us = round(NOW.timestamp()) * 1_000_000 - 30 * DAY_US
    async with open_state() as state:
        assert {key.created_at_us for key in await state.keys.list()} == {begin_us}
        log = await SqlAuditLog(state.database).page(before=None, limit=100)
    assert len(log) > len({record.action for record in log}) > 3
    assert all(later.at_us >= earlier.at_us for later, earlier in pairwise(log)), "newest first"


def test_traffic_grows_from_week_to_week_whenever_the_month_begins() -> None:
    loads = hourly_loads(datetime(2026, 4, 15, tzinfo=UTC))
    assert all(later > earlier for earlier, later in zip(loads, loads[24 * 7 :], strict=False))


def test_one_that_was_interrupted_is_made_anew(tmp_path: Path) -> None:
    """With the model that is there already: 98 MB would be downloaded once more."""

    def interrupt(_: int) -> None:
        raise OSError("no space left")

    home = Home(tmp_path)
    home.models_directory.mkdir()
    (home.models_directory / "model.gguf").touch()
    with pytest.raises(OSError, match="no space left"):
        asyncio.run(write_demo_month(home, now=NOW, requests=5, progress=interrupt))
    assert asyncio.run(write_demo_month(home, now=NOW, requests=5)) is not None
    assert {path.name for path in tmp_path.iterdir()} == {"demo", "models"}
    assert (Home(tmp_path / "demo").models_directory / "model.gguf").exists()
    assert asyncio.run(write_demo_month(home, now=NOW, requests=5)) is None


def test_how_to_look_at_it_can_be_pasted_beside_a_gateway_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one line, however long the home's path; and the month was looked for in the gateway's own PostgreSQL."""
    monkeypatch.setenv("BREAKEVEN_DATABASE_URL", "postgresql://elsewhere/breakeven")
    monkeypatch.delenv("BREAKEVEN_REDIS_URL", raising=False)
    monkeypatch.setenv("BREAKEVEN_NOTICES_WEBHOOK", "http://elsewhere/")
    home = Home(tmp_path / ("long" * 30))
    run_month(home, requests=5, as_json=False)
    told = "BREAKEVEN_DATABASE_URL= BREAKEVEN_NOTICES_WEBHOOK= BREAKEVEN_HOME="
    assert f"{told}{home.root / 'demo'} breakeven serve --port 8090\n" in capsys.readouterr().out
