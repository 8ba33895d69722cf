"""`breakeven forecast`: where spend is heading, how a monthly budget fares, and which days were unusual."""

import json
import sys
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from gateway.cli.cost_filters import why_nothing
from gateway.cli.options import AsJson, read
from gateway.cli.show_table import show_table
from gateway.cli.state import State, ask
from gateway.counted import counted
from gateway.money import show_usd
from gateway.reports.forecast_views import Anomalies, BudgetOutlookPoint, ForecastQuery, ForecastView
from gateway.reports.views import CostQuery

WEEK = 7
FEW_WEEKS = 5
CHANCE = (
    "So few weeks say little of a weekday: with mere noise, one or two of ten such histories show an unusual day too."
)


def command(
    days: Annotated[int, typer.Option(min=1, max=366, help="How many days ahead.")] = 30,
    history: Annotated[int, typer.Option(min=2, max=1000, help="Days to learn from.")] = 90,
    budget_usd: Annotated[float | None, typer.Option(help="A budget for this calendar month.")] = None,
    team: Annotated[str | None, typer.Option(help="Only this team; '' is what has none.")] = None,
    project: Annotated[str | None, typer.Option(help="Only this project; '' is what has none.")] = None,
    model: Annotated[str | None, typer.Option(help="Only this model.")] = None,
    as_json: AsJson = False,
) -> None:
    """Forecast spend. Intervals hold 90 % of simulated paths; a total's interval is not the sum of its days'."""
    query = read(
        ForecastQuery,
        days=days,
        history_days=history,
        budget_usd=budget_usd,
        team=team,
        project=project,
        model=model,
    )
    view, unusual, nothing = ask(lambda state: _ask(state, query))
    if as_json:
        both = {**view.model_dump(mode="json"), "unusual": [one.model_dump(mode="json") for one in unusual.unusual]}
        print(json.dumps(both, indent=2))
    else:
        show(view, unusual, Console(highlight=False))
    for sentence in nothing:
        print(sentence, file=sys.stderr)


async def _ask(state: State, query: ForecastQuery) -> tuple[ForecastView, Anomalies, list[str]]:
    """Adds sentences if the filters matched nothing: a misspelt team must not look like a forecast of $0."""
    services = await state.report_services()
    view, unusual = await services.forecasts.forecast(query), await services.forecasts.anomalies(query)
    if not query.filters():
        return view, unusual, []
    now, given = datetime.now(UTC), query.model_dump(include={*query.FILTERS}, exclude_none=True)
    seen = CostQuery.model_validate({"since": now - timedelta(days=query.history_days), "until": now, **given})
    return view, unusual, await why_nothing(services.books, seen, await services.books.costs(seen))


def show(view: ForecastView, unusual: Anomalies, console: Console) -> None:
    """The weeks, the total, the budget, and unusual days."""
    table = Table(
        "from", "to", "expected $", box=None, title=f"Forecast by {view.method}",
        caption="Days are UTC; a week is the sum of its days' medians",
    )  # fmt: skip
    for start in range(0, len(view.days), WEEK):
        week = view.days[start : start + WEEK]
        table.add_row(str(week[0].day), str(week[-1].day), f"{sum(Decimal(day.expected_usd) for day in week):.4f}")
    show_table(table)
    console.print(
        f"{counted(len(view.days), 'day')} in all: {show_usd(view.total_expected_usd)} "
        f"(90% of the paths: {show_usd(view.total_low_usd)} to {show_usd(view.total_high_usd)}), "
        f"from {len(view.history)} days seen. It is the median of whole paths, not the sum of the weeks."
    )
    if view.caution is not None:
        console.print(view.caution)
    month = view.month
    console.print(
        f"This month (UTC): {show_usd(month.spent_usd)} spent, {show_usd(month.expected_usd)} expected in all "
        f"({show_usd(month.low_usd)} to {show_usd(month.high_usd)}); idle GPU rent is in none of it."
    )
    if view.budget is not None:
        console.print(budget_sentence(view.budget))
    for one in unusual.unusual:
        console.print(f"Unusual: {one.day} cost {show_usd(one.cost_usd)}, expected {show_usd(one.expected_usd)}.")
    if unusual.unusual and unusual.days_seen < FEW_WEEKS * WEEK:
        console.print(CHANCE)


def budget_sentence(budget: BudgetOutlookPoint) -> str:
    ends = f"it runs out on {budget.runs_out}" if budget.runs_out else "it lasts the month"
    return (
        f"Budget {show_usd(budget.budget_usd)}: {show_usd(budget.spent_usd)} spent, "
        f"{show_usd(budget.expected_usd)} expected ({show_usd(budget.low_usd)} to {show_usd(budget.high_usd)}); "
        f"most likely {ends}; exceeded in {budget.probability_of_exceeding:.0%} of the paths."
    )
