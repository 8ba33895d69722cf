"""`breakeven keys change` touches what it names, and says what it cannot do."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gateway.cli import build
from gateway.config.first_files import write_first_files
from gateway.config.home import Home, create_home
from gateway.errors import NotFound


@pytest.fixture(autouse=True)
def _use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home(tmp_path / "home")
    create_home(home)
    write_first_files(home)
    monkeypatch.setenv("BREAKEVEN_HOME", str(home.root))


def run(*words: str, exit_code: int = 0) -> str:
    result = CliRunner().invoke(build("keys"), ["keys", *words], catch_exceptions=False)
    assert result.exit_code == exit_code, result.output
    return re.sub(r"[\s│]+", " ", result.stdout + result.stderr)


def make(*options: str) -> str:
    return json.loads(run("create", "--name", "bot", *options, "--json"))["id"]


def test_the_list_writes_times_as_the_other_lists_do() -> None:
    make()
    created = json.loads(run("list", "--json"))[0]["created"]
    assert f" {created[:10]} {created[11:19]} UTC active " in run("list")


def listed() -> dict[str, Any]:
    [row] = json.loads(run("list", "--json"))
    return row


def test_what_is_named_changes_and_the_rest_stays() -> None:
    key = make("--team", "red", "--tag", "a", "--days", "3", "--budget-usd", "5", "--requests-per-minute", "9")
    before = listed()
    run("change", key, "--project", "chat", "--tag", "b", "--tag", "c", "--budget-usd", "7", "--budget-window", "day")
    limits = {"budget_usd": "7", "budget_window": "day", "requests_per_minute": 9}
    assert listed() == {**before, "project": "chat", "tags": ["b", "c"], "limits": limits}


def test_what_is_cleared_is_gone() -> None:
    options = ("--team", "red", "--tag", "a", "--model", "m", "--days", "3", "--budget-usd", "5")
    key = make(*options, "--requests-per-minute", "9")
    run("change", key, *(word for one in ("team", "tags", "models", "end", "budget") for word in ("--clear", one)))
    row = listed()
    assert [row[name] for name in ("team", "tags", "allowed_models", "expires")] == [None, [], None, None]
    assert row["limits"] == {"requests_per_minute": 9}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "name what to change"),
        (("--clear", "role"), "'role' is none of team, project"),
        (("--clear", "team", "--team", "red"), "team is both cleared and given a value"),
        (("--clear", "budget", "--budget-usd", "5"), "budget is both cleared and given a value"),
        (("--budget-usd", "much"), "is not an amount of dollars such as 25"),
        (("--tier-quota", "premium=3/day"), "there is no tier 'premium'"),
        (("--tier-quota", "premium"), "is not TIER=REQUESTS/WINDOW"),
    ],
)
def test_what_means_nothing_is_said(words: tuple[str, ...], said: str) -> None:
    key = make()
    before = listed()
    assert said in run("change", key, *words, exit_code=2)
    assert listed() == before


def test_an_unknown_key_is_said() -> None:
    for words in (("--team", "red"), ("--requests-per-minute", "3")):
        with pytest.raises(NotFound, match="keys list"):
            run("change", "key_none", *words)
