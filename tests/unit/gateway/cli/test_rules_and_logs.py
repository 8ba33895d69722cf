"""`breakeven rules` and `breakeven logs` over the demonstration's database."""

import asyncio
import json
from decimal import Decimal
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from gateway.cli import build
from gateway.cli.state import open_state
from gateway.config.home import Home
from gateway.errors import ConfigurationError, NotFound
from gateway.rulebook.versions import text_version
from gateway.storage.sql.adjustments import SqlAdjustments
from gateway.stores import Adjustment
from tests.unit.gateway.cli.commands import run_cli

pytestmark = pytest.mark.usefixtures("month")


def active() -> str:
    return next(row["version"] for row in json.loads(run_cli("rules", "list", "--json")) if row["is_active"])


def test_apply_activate_and_roll_back(month: Path, tmp_path: Path) -> None:
    before = active()
    file = tmp_path / "edited.yaml"
    file.write_text(run_cli("rules", "show") + "# edited\n")
    assert "+# edited" in run_cli("rules", "diff", str(file))
    applied = json.loads(run_cli("rules", "apply", str(file), "--no-activate", "--json"))
    assert applied == {"version": text_version(file.read_text()), "is_active": False}
    assert active() == before
    said = run_cli("rules", "activate", applied["version"], "--reason", "test")
    assert before in said
    assert "No gateway has been started here yet." in said
    assert active() == applied["version"]
    Home(month).address_file.write_text("http://127.0.0.1:9\n")
    assert "No gateway answers at http://127.0.0.1:9" in run_cli("rules", "rollback")
    assert active() == before


def test_a_broken_file_is_named_with_its_line_and_not_stored(tmp_path: Path) -> None:
    stored = len(json.loads(run_cli("rules", "list", "--json")))
    file = tmp_path / "broken.yaml"
    file.write_text("version: 1\nrules:\n  - name: x\n    chose: {from: any}\n")
    with pytest.raises(ConfigurationError, match=r"broken\.yaml:4: .*chose"):
        run_cli("rules", "apply", str(file))
    assert len(json.loads(run_cli("rules", "list", "--json"))) == stored


def test_unknown_versions_and_files_are_told_apart() -> None:
    with pytest.raises(NotFound, match="`breakeven rules list`"):
        run_cli("rules", "show", "nothing")
    with pytest.raises(ConfigurationError, match=r"missing\.yaml: does not exist"):
        run_cli("rules", "diff", "missing.yaml")
    refused = CliRunner().invoke(build("replay"), ["replay", "--rules", "missing.yaml", "--days", "inf"])
    assert refused.exit_code == 2


def test_check_names_the_rules_as_the_list_of_versions_does() -> None:
    assert json.loads(run_cli("check", "--json"))["rules_version"] == active()


def test_the_schema_describes_a_rules_file() -> None:
    assert {"models", "rules"} <= json.loads(run_cli("rules", "schema"))["properties"].keys()


def test_logs_filter_and_show_one_in_full() -> None:
    rows = [json.loads(line) for line in run_cli("logs", "--team", "support", "--limit", "5", "--json").splitlines()]
    assert 1 <= len(rows) <= 5
    assert {row["team"] for row in rows} == {"support"}
    one = json.loads(run_cli("logs", rows[0]["request_id"], "--json"))
    assert one["cost_usd"] == rows[0]["cost_usd"]
    assert one["attempts"]
    assert "No such requests" in run_cli("logs", "--team", "nobody")
    with pytest.raises(NotFound):
        run_cli("logs", "0" * 32)


def test_logs_give_the_dearest_first_and_one_keys_alone() -> None:
    dearest = [json.loads(line) for line in run_cli("logs", "--order", "cost", "--limit", "500", "--json").splitlines()]
    costs = [Decimal(one["cost_usd"] or 0) for one in dearest]
    assert costs == sorted(costs, reverse=True)
    key = dearest[0]["key_id"]
    own = [json.loads(line) for line in run_cli("logs", "--key", key, "--limit", "500", "--json").splitlines()]
    assert len(own) == sum(one["key_id"] == key for one in dearest)
    assert {one["key_id"] for one in own} == {key}
    with pytest.raises(typer.BadParameter, match=r"^order must be 'newest', 'cost', "):
        CliRunner().invoke(build("logs"), ["logs", "--order", "size"], catch_exceptions=False, standalone_mode=False)


def test_logs_show_what_a_correction_made_of_a_cost() -> None:
    assert "corrected $" not in run_cli("logs", "--team", "support")
    before = json.loads(run_cli("logs", "--team", "support", "--limit", "1", "--json"))
    asyncio.run(_correct(Adjustment(before["request_id"], "refund", "credit-7", -(10**6), "an outage")))
    after = json.loads(run_cli("logs", before["request_id"], "--json"))
    assert after["cost_usd"] == before["cost_usd"] == before["corrected_cost_usd"]
    assert Decimal(after["corrected_cost_usd"]) == Decimal(before["cost_usd"]) - Decimal("0.000001")
    assert [(one["reference"], one["reason"]) for one in after["corrections"]] == [("credit-7", "an outage")]
    assert "corrected $" in run_cli("logs", "--team", "support")


async def _correct(adjustment: Adjustment) -> None:
    async with open_state() as state:
        assert await SqlAdjustments(state.database).book([adjustment], author="test") == 1
