"""`breakeven keys change` touches what it names, and says what it cannot do."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gateway.cli import build
from gateway.errors import NotFound
from tests.homes import new_home
from tests.newest_schema import make_newest_file


@pytest.fixture(autouse=True)
def _use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = new_home(tmp_path / "home")
    make_newest_file(home.root / "breakeven.db")
    monkeypatch.setenv("BREAKEVEN_HOME", str(home.root))


def run(*words: str, exit_code: int = 0) -> str:
    result = CliRunner().invoke(build("keys"), ["keys", *words], catch_exceptions=False)
    assert result.exit_code == exit_code, result.output
    return re.sub(r"[\s│]+", " ", result.stdout + result.stderr)


def make(*options: str) -> str:
    words = ["keys", "create", "--name", "bot", *options, "--json"]
    return json.loads(CliRunner().invoke(build("keys"), words, catch_exceptions=False).stdout)["id"]


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


@pytest.mark.parametrize(
    ("words", "limits"),
    [
        (("--budget-usd", "10"), {"budget_usd": "10", "budget_window": "day"}),
        (("--budget-window", "total"), {"budget_usd": "5", "budget_window": "total"}),
        (("--requests-per-minute", "9"), {"budget_usd": "5", "budget_window": "day", "requests_per_minute": 9}),
        (("--max-parallel-requests", "4"), {"budget_usd": "5", "budget_window": "day", "max_parallel_requests": 4}),
    ],
)
def test_a_budget_keeps_its_window_and_a_window_its_budget(words: tuple[str, ...], limits: dict[str, Any]) -> None:
    key = make("--budget-usd", "5", "--budget-window", "day")
    run("change", key, *words)
    assert listed()["limits"] == limits


def test_a_first_budget_is_for_a_month_and_a_window_without_one_is_refused() -> None:
    key = make()
    assert "give --budget-usd too" in run("change", key, "--budget-window", "day", exit_code=2)
    assert "give --budget-usd too" in run("create", "--name", "b", "--budget-window", "day", exit_code=2)
    assert "give --end-user-budget-usd too" in run("change", key, "--end-user-budget-window", "day", exit_code=2)
    run("change", key, "--budget-usd", "10", "--end-user-budget-usd", "2")
    own = {"budget_usd": "10", "budget_window": "month"}
    assert listed()["limits"] == {**own, "end_user_budget_usd": "2", "end_user_budget_window": "month"}
    run("change", key, "--clear", "end-user-budget")
    assert listed()["limits"] == own


def test_a_model_that_there_is_not_is_told_and_may_come_later() -> None:
    said = run("create", "--name", "b", "--model", "mispelt")
    assert "There is no model 'mispelt' here now" in said
    key = json.loads(run("list", "--json"))[0]["id"]
    [name] = re.findall(r"There are: ([\w./-]+)", said)
    assert "no model" not in run("change", key, "--model", name)
    assert "no model 'other'" in run("change", key, "--model", name, "--model", "other")
    assert listed()["allowed_models"] == sorted((name, "other"))


def test_what_is_cleared_is_gone() -> None:
    options = ("--team", "red", "--tag", "a", "--model", "m", "--days", "3", "--budget-usd", "5")
    key = make(*options, "--requests-per-minute", "9", "--max-parallel-requests", "4")
    cleared = ("team", "tags", "models", "end", "budget", "max-parallel-requests")
    run("change", key, *(word for one in cleared for word in ("--clear", one)))
    row = listed()
    assert [row[name] for name in ("team", "tags", "allowed_models", "expires")] == [None, [], None, None]
    assert row["limits"] == {"requests_per_minute": 9}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "name what to change"),
        (("--clear", "role"), "'role' is not one of team, project"),
        (("--clear", "team", "--team", "red"), "team is both cleared and given a value"),
        (("--clear", "budget", "--budget-usd", "5"), "budget is both cleared and given a value"),
        (("--budget-usd", "much"), "is not an amount of dollars such as 25"),
        (("--budget-usd", "NaN"), "is not an amount of dollars such as 25"),
        (("--budget-usd", "1e30"), "budget_usd must be at most 9,000,000 dollars"),
        (("--tier-quota", "premium=3/day"), "there is no tier 'premium'"),
        (("--tier-quota", "premium=²/day"), "is not TIER=REQUESTS/WINDOW"),
        (("--name", "\N{ROCKET}"), "for --name: '\N{ROCKET}' may have only letters, digits and"),
        (("--tag", "a", "--tag", "b,c"), "for --tag: 'b,c' may have only letters"),
        (("--team", "ops "), "for --team: 'ops ' may have only letters"),
    ],
)
def test_what_means_nothing_is_said(words: tuple[str, ...], said: str) -> None:
    key = make()
    before = listed()
    assert said in run("change", key, *words, exit_code=2)
    assert listed() == before


def test_a_key_is_called_as_it_may_be_called_over_http() -> None:
    assert "for --name: 'bot!' may have only letters" in run("create", "--name", "bot!", exit_code=2)
    assert "for --team: " in run("create", "--name", "bot", "--team", "", exit_code=2)
    assert "for '--days'" in run("create", "--name", "bot", "--days", "inf", exit_code=2)
    assert json.loads(run("list", "--json")) == []


def test_an_unknown_key_is_said() -> None:
    for words in (
        ("change", "key_none", "--team", "red"),
        ("change", "key_none", "--requests-per-minute", "3"),
        ("revoke", "key_none"),
        ("rotate", "key_none"),
        ("end-overlap", "key_none"),
    ):
        with pytest.raises(NotFound, match="keys list"):
            run(*words)


def test_a_key_is_rotated_by_its_name_and_the_list_tells_of_the_overlap_until_it_is_ended() -> None:
    key = make()
    made = json.loads(run("rotate", "bot", "--overlap", "90m", "--json"))
    assert (made["id"], made["key"][:3]) == (key, "bk-")
    [old] = listed()["old_secrets"]
    assert (old["ends"], old["last_used"]) == (made["old_secrets_end"], None)
    assert old["replaced"] == listed()["rotated"]
    shown = f"{key} bot: an older secret works until {old['ends'][:10]} {old['ends'][11:19]} UTC, not used since"
    assert shown in run("list")
    assert run("end-overlap", "bot").strip() == f"Key {key} now works only with its newest secret."
    assert listed()["old_secrets"] == []
    assert "an older secret" not in run("list")
    assert f"Key {key} has a new secret; older ones work no more. Shown this once: bk-" in run(
        "rotate", key, "--overlap", "0"
    )


@pytest.mark.parametrize("overlap", ["", "24", "1w", "-1h", "31d", "0.5h", "h"])
def test_an_overlap_that_is_no_time_or_too_long_is_said(overlap: str) -> None:
    make()
    assert "is not a time such as 90m, 24h or 7d, at most 30d" in run(
        "rotate", "bot", f"--overlap={overlap}", exit_code=2
    )
    assert listed()["rotated"] is None


def test_a_name_that_several_keys_have_is_no_name_for_one_until_all_others_are_revoked() -> None:
    first, second = make(), make()
    said = run("rotate", "bot", exit_code=2)
    assert "2 keys are called 'bot'; say which by its id:" in said
    assert first in said
    run("revoke", first)
    assert json.loads(run("rotate", "bot", "--json"))["id"] == second
    run("revoke", "bot")
    with pytest.raises(NotFound, match="no key with the id or name 'bot'"):
        run("revoke", "bot")
