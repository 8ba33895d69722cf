"""`breakeven budgets`: sets, lists and removes the monthly budgets of teams, projects and everything."""

from collections.abc import Sequence
from datetime import date
from typing import Annotated

import typer
from pydantic import ValidationError
from rich.table import Column, Table

from gateway.access.keys import KeyRing
from gateway.api.admin.budgets import BudgetRow, NewBudget, budget_row, keys_by_budget
from gateway.cli.options import AsJsonLines
from gateway.cli.show_table import show_table
from gateway.cli.state import AUTHOR, State, ask
from gateway.clock import now_us
from gateway.errors import NotFound
from gateway.limits.values import BudgetScope
from gateway.money import parse_usd, show_usd
from gateway.reports.budgets_service import BudgetsService
from gateway.reports.daily_costs import BudgetBurn, DailyHistory
from gateway.storage.sql.budgets import SqlBudgets
from gateway.storage.sql.openings import SqlOpenings
from gateway.stores import Budget
from gateway.yaml_document import problem_of

app = typer.Typer(help="Monthly budgets of teams, projects and everything (UTC).", no_args_is_help=True)
Whose = Annotated[str, typer.Argument(help="team=NAME, project=NAME or all.")]


@app.command("list")
def list_budgets(as_json: AsJsonLines = False) -> None:
    """Every budget, and what is spent of it this month. A key's own is in `breakeven keys list`."""
    found = ask(_rows)
    if as_json:
        for one in found:
            print(one.model_dump_json(exclude={"outlook"}))
    elif found:
        show_table(_table(found))
    else:
        print("No budgets.")


@app.command("set")
def set_budget(
    whose: Whose,
    month_usd: Annotated[str, typer.Argument(help="Dollars a month.")],
    stops: Annotated[bool, typer.Option("--stops", help="Refuse requests beyond it; otherwise it only warns.")] = False,
) -> None:
    """Make a budget, or replace it. Every worker knows within a second."""
    scope, name = _scope_and_name(whose)
    try:
        new = NewBudget(scope=scope, name=name, month_usd=month_usd, stops=stops)
    except ValidationError as error:
        raise typer.BadParameter(f"{month_usd!r} {problem_of(error.errors()[0])}") from error
    budget = Budget(scope, name, parse_usd(new.month_usd), AUTHOR, now_us(), stops=stops)

    async def change(state: State) -> BudgetRow:
        await SqlBudgets(state.database).set(budget)
        [row] = [one for one in await _rows(state) if (one.scope, one.name) == (scope, name)]
        return row

    row = ask(change)
    beyond = "requests beyond it are refused" if row.stops else "beyond it there is only a warning"
    print(f"{whose}: {show_usd(row.month_usd)} a month, {show_usd(row.spent_usd)} of it spent; {beyond}.")
    if not row.keys:
        print(f"No key in use is of this {scope}, so it covers nothing: is the name right?")


@app.command()
def remove(whose: Whose) -> None:
    """Take a budget away."""
    scope, name = _scope_and_name(whose)
    if not ask(lambda state: SqlBudgets(state.database).remove(scope, name, author=AUTHOR)):
        raise NotFound(f"There is no budget for {whose}; `breakeven budgets list` shows them.")
    print(f"Removed the budget for {whose}.")


def _scope_and_name(whose: str) -> tuple[BudgetScope, str]:
    """Raises BadParameter."""
    scope, sign, name = whose.partition("=")
    if scope not in ("all", "team", "project") or bool(sign) != bool(name) or (scope == "all") == bool(name):
        raise typer.BadParameter(f"{whose!r} is not team=NAME, project=NAME or all")
    return scope, name


async def _rows(state: State) -> Sequence[BudgetRow]:
    store, openings = SqlBudgets(state.database), SqlOpenings(state.database)
    service = BudgetsService(store, state.reports, _no_outlook, _nobody, now_us=now_us, openings=openings.of)
    ring = KeyRing(b"")
    ring.replace(await state.keys.records())
    counted = keys_by_budget(ring.working(now_us()))
    return [budget_row(one, counted) for one in await service.standings()]


def _no_outlook(days: DailyHistory, budget_pico_usd: int, today: date) -> BudgetBurn | None:
    """`breakeven forecast --team NAME` has it."""


async def _nobody() -> None:
    """Running gateways notice by themselves."""


def _table(rows: Sequence[BudgetRow]) -> Table:
    table = Table(
        "whose", Column("a month", justify="right"), Column("spent", justify="right"),
        Column("share", justify="right"), Column("keys", justify="right"), "beyond it", "set by",
    )  # fmt: skip
    for one in rows:
        table.add_row(
            one.scope if one.scope == "all" else f"{one.scope}={one.name}",
            show_usd(one.month_usd), show_usd(one.spent_usd), f"{one.spent_share:.1%}", str(one.keys),
            "stops" if one.stops else "warns", one.set_by,
        )  # fmt: skip
    return table
