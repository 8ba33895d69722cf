"""`breakeven replay`: decides logged traffic again under other rules, before they are stored."""

from pathlib import Path

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column, Table

from gateway.cli.options import AsJson
from gateway.cli.show_table import show_table
from gateway.cli.state import State, ask
from gateway.clock import now_us
from gateway.config.settings import MOST_DAYS, read_text
from gateway.counted import counted
from gateway.instants import DAY_US
from gateway.ledger.entry import OFF_PATH
from gateway.reports.replay_service import ReplayService
from gateway.reports.replay_views import ReplayMove, ReplayResult
from gateway.storage.sql.feedback import SqlFeedback
from gateway.sums import SumsQuery

COLUMNS = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())


def command(
    rules: Path = typer.Option(..., help="The rules file to try."),
    days: float = typer.Option(7.0, min=0.001, max=MOST_DAYS, help="How many days of logged traffic, up to now."),
    as_json: AsJson = False,
) -> None:
    """Decide logged traffic again under other rules: dollars, quality, time to first token, and which requests would
    have moved."""
    result = ask(lambda state: _replay(state, rules, days))
    if as_json:
        print(result.model_dump_json(indent=2))
        return
    console = Console(highlight=False)
    cost = "Cost of the others" if result.refused_requests or result.unpriced_requests else "Cost"
    console.print(
        f"{counted(result.requests, 'request')}, {result.moved_requests} would move, {result.refused_requests} would "
        f"be refused{_unpriced(result)}. {cost} ${result.cost_before_usd} -> ${result.cost_after_usd}."
    )
    console.print(
        f"Predicted quality {_known(result.quality_before)} -> {_known(result.quality_after)}. First token, median: "
        f"{_known(result.time_to_first_token_before_seconds)} -> {_known(result.time_to_first_token_after_seconds)} s."
    )
    if result.moves:
        table = Table("from", "to", Column("requests", justify="right"), Column("change of cost USD", justify="right"))
        for move in result.moves:
            table.add_row(move.from_model, move.to_model, f"{move.requests:,}", _change(move))
        show_table(table)
    for note in result.notes:
        console.print(f"- {note}")


def _unpriced(result: ReplayResult) -> str:
    return f", {result.unpriced_requests} have no known price" if result.unpriced_requests else ""


def _change(move: ReplayMove) -> str:
    """With a sign, and with how many requests have no known price."""
    if move.unpriced_requests == move.requests:
        return "unknown"
    sign = "" if move.cost_change_usd.startswith("-") else "+"
    rest = f", {move.unpriced_requests:,} of them unknown" if move.unpriced_requests else ""
    return f"{sign}{move.cost_change_usd}{rest}"


def _known(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3f}"


async def _replay(state: State, file: Path, days: float) -> ReplayResult:
    document = state.deployment.catalogue.parse(read_text(file), file=str(file))
    until = now_us()
    since = until - round(days * DAY_US)
    sums = await state.reports.sums(SumsQuery(since, until, ("operation",), money_alone=True))
    logged = sum(row.requests for row in sums if row.group["operation"] not in OFF_PATH)
    with Progress(*COLUMNS, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task("Deciding again", total=logged)
        service = ReplayService(
            state.ledger,
            SqlFeedback(state.database),
            state.snapshot_of,
            now_us,
            most_requests=None,
            progress=lambda done: shown.update(task, completed=done),
        )
        result = await service(document, since, until)
    if logged > result.requests:
        deleted = counted(logged - result.requests, "request")
        result.notes.append(f"{deleted} of this time cannot be decided again: retention has kept only their sums.")
    return result
