"""`breakeven verify` as a user types it, over the demonstration's month, unchanged and changed."""

import contextlib
import json
import shutil
import sqlite3
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from gateway.cli.verify import ONLY_END_USERS, Report, sentences
from gateway.instants import DAY_US, microseconds
from gateway.money import format_usd
from gateway.storage.sums.verification import Compared, Mismatch
from gateway.storage.tables.books import daily
from tests.unit.gateway.cli.commands import run_cli


@pytest.fixture
def own_month(written_month: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the month that one test may change."""
    home = Path(shutil.copytree(written_month, tmp_path / "demo"))
    monkeypatch.setenv("BREAKEVEN_HOME", str(home))
    return home


def write(home: Path, statement: str) -> None:
    with contextlib.closing(sqlite3.connect(home / "breakeven.db")) as connection, connection:
        connection.execute(statement)


def test_books_that_add_up_come_to_what_costs_says(own_month: Path) -> None:
    found = json.loads(run_cli("verify", "--json"))
    everything = json.loads(run_cli("costs", "--json", "--from", found["first_day"], "--to", "2026-11-21"))
    assert found["ok"] is True
    assert (found["requests"], found["mismatches"]) == (everything["total"]["requests"], [])
    assert found["cost_usd"] == everything["total"]["cost_usd"] != format_usd(0)
    said = run_cli("verify")
    assert f"{found['requests']:,} requests and" in said
    assert "unbroken" in said
    assert run_cli("verify", "--from", "2026-11-10", "--to", "2026-11-11").startswith("1 day with requests, 2026-11-10")
    assert "no request" in run_cli("verify", "--from", "2030-01-01")


def test_what_somebody_changed_is_told_and_ends_it_with_status_1(own_month: Path) -> None:
    write(own_month, "UPDATE entries SET output_pico_usd = output_pico_usd + 1 WHERE output_pico_usd IS NOT NULL")
    said = run_cli("verify", exit_code=1)
    assert "output_pico_usd" in said
    assert "do not add up" in said
    assert "a backup" in said
    assert json.loads(run_cli("verify", "--json", exit_code=1))["ok"] is False


def test_a_record_of_the_audit_log_that_was_changed_is_told(own_month: Path) -> None:
    write(own_month, "UPDATE audit_log SET actor = 'somebody else' WHERE sequence = 2")
    assert "record 2 does not follow" in run_cli("verify", exit_code=1)


@pytest.mark.parametrize(("compared", "is_told"), [("requests", False), ("end users", True)])
def test_what_an_older_replica_left_out_of_end_users_budgets_is_told_apart(compared: Compared, is_told: bool) -> None:
    day, other = date(2026, 11, 28), Mismatch("end users", "counted_pico_usd", 3, 2, 1)
    report = Report(first=day, last=day, mismatches=[(day, other), (day, Mismatch(compared, "requests", 2, 1, 1))])
    said = list(sentences(report))
    assert ("do not add up" not in said[0], ONLY_END_USERS in said) == (is_told, is_told)


def test_what_was_left_out_of_end_users_budgets_is_added_up_again_if_nothing_else_differs(own_month: Path) -> None:
    today = microseconds(datetime.now(UTC)) // DAY_US  # its month is kept
    zeros = ", ".join("x''" if name.endswith("_sketch") else "0" for name in daily.c.keys()[2:])
    write(own_month, f"INSERT INTO daily VALUES ({today}, 1, {zeros})")
    too_much = f"INSERT INTO end_user_days VALUES ('k', 'who was forgotten', {today}, 5)"
    write(own_month, too_much)
    assert "--repair" in run_cli("verify", exit_code=1)
    assert "did not, on 1 day, and has been added up again" in run_cli("verify", "--repair")
    assert json.loads(run_cli("verify", "--repair", "--json"))["repaired_days"] == 0
    write(own_month, too_much)
    write(own_month, "UPDATE daily SET requests = requests + 1")
    found = json.loads(run_cli("verify", "--repair", "--json", exit_code=1))
    assert found["repaired_days"] == 0
    assert "end users" in {one["compared"] for one in found["mismatches"]}
