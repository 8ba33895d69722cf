"""`breakeven keys import-litellm` from answers of LiteLLM's API; from its database see tests/faults/fleet."""

import json
import re
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gateway.cli import build
from gateway.config.home import Home
from gateway.errors import StateError
from tests.homes import new_home
from tests.litellm_database import hash_token
from tests.newest_schema import make_newest_file

SECRET = "sk-shop-secret"
RULES = """\
version: 1
models:
  gpt-4o@x: {backend: there, upstream_model: a, context_window: 1000}
  gpt-4o@y: {backend: there, upstream_model: b, context_window: 1000}
  own: {backend: there, upstream_model: c, context_window: 1000}
rules:
  - {name: gpt-4o, when: {model: [gpt-4o, alias]}, choose: {from: [gpt-4o@x, gpt-4o@y, own], by: order}}
  - {name: default, choose: {from: any}}
"""
CONFIG = """\
model_list:
  - {model_name: own, litellm_params: {model: openai/c}, model_info: {access_groups: [beta]}}
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    made = new_home(tmp_path / "home")
    (made.root / "breakeven.yaml").write_text(
        "engine: {is_enabled: false}\nsimulated_hosted: never\nbackends: {there: {base_url: 'http://127.0.0.1:1/v1'}}\n"
        "limits: {teams: {known: {requests_per_minute: 5}}}\n"
    )
    (made.root / "rules.yaml").write_text(RULES)
    monkeypatch.setenv("BREAKEVEN_HOME", str(made.root))
    return made


@pytest.fixture
def _schema(home: Home) -> None:
    make_newest_file(home.root / "breakeven.db")


def run(*words: str, exit_code: int = 0) -> str:
    result = CliRunner().invoke(build("keys"), ["keys", *words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == exit_code, result.output
    return re.sub(r"[\s│]+", " ", result.stdout + result.stderr)


def answers(tmp_path: Path, *keys: dict[str, Any], teams: list[dict[str, Any]] | None = None) -> list[str]:
    (tmp_path / "keys.json").write_text(json.dumps({"keys": keys, "total_count": len(keys)}))
    (tmp_path / "teams.json").write_text(json.dumps(teams or []))
    return ["--answer", str(tmp_path / "keys.json"), *(["--answer", str(tmp_path / "teams.json")] if teams else [])]


def key(alias: str = "shop", **columns: Any) -> dict[str, Any]:
    return {"token": hash_token(f"sk-{alias}-secret"), "key_alias": alias, **columns}


@pytest.mark.usefixtures("_schema")
def test_keys_are_made_and_listed_with_whose_their_secrets_are(home: Home, tmp_path: Path) -> None:
    given = answers(
        tmp_path,
        key(team_id="t", max_budget=5, budget_duration="1d", spend=0.1, allowed_routes=["\x1b[2J\n"]),
        key("old", expires="2020-01-01T00:00:00Z"),
        teams=[
            {"team_id": "t", "team_alias": "Red", "rpm_limit": 9, "max_budget": 7, "budget_duration": "30d"},
            {"team_id": "k", "team_alias": "known", "rpm_limit": 6},
        ],
    )
    tried = run("import-litellm", *given, "--dry-run")
    assert " shop Red all $5 / day $0.1 would be made" in tried
    assert "old: it has expired" in tried
    assert "\x1b" not in tried
    assert "1 key would be made, 0 here before, 1 left out." in tried
    assert json.loads(run("list", "--json")) == []
    said = run("import-litellm", *given)
    assert "1 key made" in said
    assert "limits: teams: Red: requests_per_minute: 9" in said
    assert "known: requests_per_minute" not in said
    assert "team Red $7 $0 set" in said
    with closing(sqlite3.connect(home.root / "breakeven.db")) as file:
        changes = [action for (action,) in file.execute("SELECT action FROM audit_log ORDER BY sequence")]
    assert changes == ["budget.set", "key.create"], "no key works before the budget that is to stop it"
    [row] = json.loads(run("list", "--json"))
    assert (row["name"], row["team"], row["secret"]) == ("shop", "Red", "LiteLLM's")
    assert row["limits"] == {"budget_usd": "5", "budget_window": "day"}
    assert f"{row['id']} shop: its secret is the one that it had at LiteLLM" in run("list")
    again = json.loads(run("import-litellm", *given, "--json"))
    assert [one["state"] for one in again["keys"]] == [f"is here: {row['id']}"]
    assert [one["state"] for one in again["budgets"]] == ["is here, and stays as it is"]
    run("rotate", "shop")
    assert json.loads(run("list", "--json"))[0]["secret"] == "ours"
    assert hash_token(SECRET) not in said + run("list") + run("list", "--json")


@pytest.mark.usefixtures("_schema")
def test_what_was_spent_this_month_counts_here_unless_budgets_are_to_begin_anew(tmp_path: Path) -> None:
    at = datetime.now(UTC)
    ends = f"{datetime(at.year + at.month // 12, at.month % 12 + 1, 1):%Y-%m-%dT%H:%M:%S}"  # noqa: DTZ001
    month: dict[str, Any] = {"max_budget": 5, "budget_duration": "30d", "budget_reset_at": ends}
    team = {"team_id": "t", "team_alias": "Red", **month, "spend": 3}

    def found(spend: float, *words: str) -> str:
        return run("import-litellm", *answers(tmp_path, key(team_id="t", spend=spend, **month), teams=[team]), *words)

    assert "$0.5, which counts here" not in found(0.5, "--budgets-anew")
    assert json.loads(run("list", "--json"))[0]["taken_over_usd"] is None
    tried = json.loads(found(0.5, "--dry-run", "--json"))
    assert (tried["keys"][0]["counts_here_usd"], tried["budgets"][0]["counts_here_usd"]) == ("0.5", "3")
    assert json.loads(run("list", "--json"))[0]["taken_over_usd"] is None
    said = found(0.5)
    assert "$0.5, which counts here" in said
    assert "$3, which counts here" in said
    found(0.75)
    [row] = json.loads(run("list", "--json"))
    assert (row["taken_over_from"], row["taken_over_usd"]) == ("LiteLLM", "0.75")
    listed = run("list")
    assert f"{row['id']} shop: of its budget $0.75 was spent this month at LiteLLM" in listed
    assert ", from LiteLLM" in listed
    run("change", "shop", "--clear", "budget")
    assert json.loads(run("list", "--json"))[0]["taken_over_usd"] is None


@pytest.mark.usefixtures("_schema")
def test_names_of_models_are_what_answers_to_them_here(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG)
    given = answers(
        tmp_path,
        key("one", models=["gpt-4o"]),
        key("two", models=["alias"]),
        key("three", models=["beta"]),
        key("four", models=["gone"]),
    )
    found = json.loads(run("import-litellm", *given, "--config", str(tmp_path / "config.yaml"), "--json"))["keys"]
    assert {one["name"]: one["allowed_models"] for one in found} == {
        "one": ["gpt-4o@x", "gpt-4o@y"],
        "two": ["gpt-4o@x", "gpt-4o@y"],
        "three": ["own"],
        "four": ["gone"],
    }
    assert found[3]["notes"] == ["it may call gone, which is no model here yet"]


@pytest.mark.usefixtures("home")
def test_what_cannot_be_is_said(tmp_path: Path) -> None:
    assert "give LiteLLM's --database" in run("import-litellm", exit_code=2)
    said = run("import-litellm", "--database", "mysql://u:hush@h/d", exit_code=2)
    assert "must be LiteLLM's DATABASE_URL" in said
    assert "hush" not in said
    with pytest.raises(StateError, match="without tables yet"):
        run("import-litellm", *answers(tmp_path, key()), "--dry-run")
