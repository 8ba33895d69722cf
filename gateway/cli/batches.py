"""`breakeven batches`: lists batches with their progress and cost, and cancels one."""

import json
from collections.abc import Sequence
from typing import Any

import typer
from rich.table import Column, Table

from gateway.api.admin.batches import booked
from gateway.batches.values import UNDER_WAY, Batch, Progress
from gateway.cli.options import AsJson, AsJsonLines
from gateway.cli.show_table import show_table
from gateway.cli.state import AUTHOR, State, ask
from gateway.counted import counted
from gateway.errors import NotFound
from gateway.instants import moment_of
from gateway.money import plain, usd
from gateway.storage.sql.batches import SqlBatches
from gateway.storage.sql.entries import SqlEntries
from gateway.storage.sql.stores import open_files

app = typer.Typer(help="Requests that can wait, of every team (see docs/api.md).", no_args_is_help=True)


@app.command("list")
def list_batches(
    limit: int = typer.Option(50, min=1, max=1000, help="How many at most, the newest first."),
    under_way: bool = typer.Option(False, "--under-way", help="Only those that have not ended."),
    as_json: AsJsonLines = False,
) -> None:
    """Batches, the newest first. Their costs are those of the answers so far."""
    found = ask(lambda state: _store(state).recent(limit, UNDER_WAY if under_way else None))
    if as_json:
        for one in found:
            print(json.dumps(_fields(one)))
    elif found:
        show_table(_table(found))
    else:
        print("No batches.")


@app.command()
def cancel(batch_id: str, as_json: AsJson = False) -> None:
    """Send no more of a batch's requests. Answers so far stay in its output file."""
    batch = ask(lambda state: _store(state).stop(batch_id, author=AUTHOR))
    if batch is None:
        raise NotFound(f"There is no batch {batch_id}; `breakeven batches list` shows them.")
    print(json.dumps(_fields(batch)) if as_json else f"{batch.id} is {batch.status}.")


@app.command("cost")
def show_cost(batch_id: str, as_json: AsJson = False) -> None:
    """What a batch's requests cost in the ledger, with corrections and lines that were sent again."""
    found = booked(ask(lambda state: SqlEntries(state.database).batch_cost(batch_id)))
    if as_json:
        print(found.model_dump_json())
        return
    if not found.requests:
        print(f"The ledger keeps no request of {batch_id}.")
        return
    dollars = "the price is unknown" if found.cost_usd is None else f"${plain(found.cost_usd)}"
    without = f", without {found.unpriced_requests:,} whose price is unknown" if found.unpriced_requests else ""
    print(f"{counted(found.requests, 'request')}: {dollars}{without if found.cost_usd is not None else ''}")


def _store(state: State) -> SqlBatches:
    return SqlBatches(state.database, open_files(state.database, state.deployment.home))


def _fields(batch: Batch) -> dict[str, Any]:
    said = batch.progress
    return {
        "id": batch.id,
        "owner": batch.tenant,
        "key_id": batch.key_id,
        "endpoint": batch.asked.endpoint,
        "status": batch.status,
        "total": said.total,
        "completed": said.completed,
        "failed": said.failed,
        **said.costs(),
        "created_at": moment_of(batch.created_at_us).isoformat(),
        "expires_at": moment_of(batch.deadline_us).isoformat(),
    }


def _table(found: Sequence[Batch]) -> Table:
    table = Table(Column("batch", no_wrap=True), "of", "endpoint", "status", box=None)
    for name in ("requests", "answered", "failed", "cost $"):
        table.add_column(name, justify="right")
    table.add_column("until (UTC)", no_wrap=True)
    for one in found:
        said = one.progress
        table.add_row(
            one.id,
            one.tenant,
            one.asked.endpoint,
            one.status,
            f"{said.total:,}",
            f"{said.completed:,}",
            f"{said.failed:,}",
            _cost_text(said),
            moment_of(one.deadline_us).strftime("%m-%d %H:%M"),
        )
    return table


def _cost_text(said: Progress) -> str:
    """If no answer has a known price, the cost is unknown, not $0."""
    if said.unpriced and said.unpriced == said.completed:
        return "unknown"
    return plain(usd(said.cost_pico_usd)) + (" and more" if said.unpriced else "")
