"""`breakeven costs` over the demonstration's database: every form says the same sums."""

import asyncio
import csv
import io
import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gateway.cli import build
from gateway.cli.demo_month import write_demo_month
from gateway.config.home import Home

PERIOD = ("--since", "2026-10-01", "--until", "2026-12-01")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    now = datetime(2026, 11, 20, 12, tzinfo=UTC)
    month = asyncio.run(write_demo_month(Home(tmp_path_factory.mktemp("costs")), now=now, requests=60))
    assert month is not None
    return month.home.root


@pytest.fixture(autouse=True)
def _use(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BREAKEVEN_HOME", str(home))


def run(*words: str) -> str:
    result = CliRunner().invoke(build("costs"), ["costs", *PERIOD, *words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def table(*words: str) -> dict[str, Any]:
    return json.loads(run("--json", *words))


def test_groups_add_up_to_the_total() -> None:
    found = table("--by", "model,team")
    assert found["by"] == ["model", "team"]
    assert sum(row["requests"] for row in found["rows"]) == found["total"]["requests"] > 0
    assert sum(Decimal(row["cost_usd"]) for row in found["rows"]) == Decimal(found["total"]["cost_usd"])


def test_csv_says_what_json_says() -> None:
    rows = list(csv.DictReader(io.StringIO(run("--csv", "--by", "model"))))
    expected = table("--by", "model")["rows"]
    assert [row["model"] for row in rows] == [row["group"]["model"] or "" for row in expected]
    assert [row["cost_usd"] for row in rows] == [row["cost_usd"] for row in expected]


def test_the_table_names_every_group() -> None:
    drawn = run("--by", "day")
    assert all(row["group"]["day"] in drawn for row in table("--by", "day")["rows"])


def test_an_unknown_dimension_is_refused() -> None:
    result = CliRunner().invoke(build("costs"), ["costs", "--by", "colour"])
    assert result.exit_code == 2
    assert "one to three different names" in result.output
