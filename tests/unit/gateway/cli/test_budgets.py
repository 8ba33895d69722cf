"""`breakeven budgets` on the demonstration's month."""

import asyncio
import json
from functools import partial

import pytest
from typer.testing import CliRunner

from gateway.cli import build
from gateway.cli.state import open_state
from gateway.errors import NotFound
from gateway.storage.sql.audit import SqlAuditLog
from tests.unit.gateway.cli.commands import run_cli

pytestmark = pytest.mark.usefixtures("month")
said = partial(run_cli, "budgets")


async def audited() -> list[tuple[str, str, str]]:
    async with open_state() as state:
        return [
            (one.actor, one.action, one.subject) for one in await SqlAuditLog(state.database).page(before=None, limit=2)
        ]


def test_a_budget_is_set_replaced_listed_and_removed() -> None:
    """Everything else that an owner sets had a command."""
    there = said("list", "--json").splitlines()
    told = said("set", "team=research", "250")
    assert told.startswith("team=research: $250.00 a month, $")
    assert "beyond it there is only a warning" in told  # also where the budget before it stopped
    assert "requests beyond it are refused" in said("set", "team=research", "300.5", "--stops")
    rows = {(one["scope"], one["name"]): one for one in map(json.loads, said("list", "--json").splitlines())}
    assert len(rows) == len({*rows, *((one["scope"], one["name"]) for one in map(json.loads, there))})
    mine = rows["team", "research"]
    assert (mine["month_usd"], mine["stops"], mine["set_by"]) == ("300.500000000000", True, "command line")
    assert mine["keys"] > 0
    [line] = [one for one in said("list").splitlines() if "team=research" in one]
    assert "$300.50" in line
    assert "stops" in line
    assert said("remove", "team=research") == "Removed the budget for team=research.\n"
    assert asyncio.run(audited()) == [
        ("command line", "budget.remove", "team research"),
        ("command line", "budget.set", "team research"),
    ]
    with pytest.raises(NotFound, match="There is no budget for team=research"):
        said("remove", "team=research")


def test_a_team_that_no_key_has_is_told() -> None:
    assert "No key in use is of this team" in said("set", "team=reserch", "5")


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["set", "team", "5"], "'team' is not team=NAME, project=NAME or all"),
        (["set", "all=x", "5"], "'all=x' is not team=NAME, project=NAME or all"),
        (["remove", "key=x"], "'key=x' is not team=NAME, project=NAME or all"),
        (["set", "all", "0"], "'0' must be above 0 and at most 9,000,000 dollars a month"),
        (["set", "all", "lots"], "'lots' is not an amount of dollars such as 2500 or 2500.50"),
    ],
)
def test_what_is_no_budget_is_told(words: list[str], problem: str) -> None:
    result = CliRunner().invoke(build("budgets"), ["budgets", *words], env={"COLUMNS": "200"})
    assert result.exit_code == 2
    assert problem in " ".join(result.output.split())
