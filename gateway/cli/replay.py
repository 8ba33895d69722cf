"""`breakeven replay`: logged traffic decided again under other rules, before anybody saves them."""

import asyncio
from pathlib import Path

import typer
from rich.console import Console
from rich.table import Table

from gateway.api.admin_rules import ReplayResult
from gateway.cli.state import open_state
from gateway.config.settings import read_text
from gateway.replay_service import ReplayService
from gateway.wiring import now_us

DAY_US = 86_400_000_000


def command(
    rules: Path = typer.Option(..., help="The rules file to try."),
    days: float = typer.Option(7.0, min=0.001, help="How many days of logged traffic, up to now."),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object."),
) -> None:
    """What an edit would have done: dollars, quality, time to first token, and which requests would have moved."""
    result = asyncio.run(_replay(rules, days))
    if as_json:
        print(result.model_dump_json(indent=2))
        return
    console = Console(highlight=False)
    console.print(
        f"{result.requests} requests, {result.moved_requests} would move, {result.refused_requests} would be refused. "
        f"Cost ${result.cost_before_usd} -> ${result.cost_after_usd}."
    )
    table = Table("from", "to", "requests")
    for move in result.moves:
        table.add_row(move.from_model, move.to_model, str(move.requests))
    console.print(table)
    for note in result.notes:
        console.print(f"- {note}")


async def _replay(file: Path, days: float) -> ReplayResult:
    async with open_state() as state:
        document = state.deployment.catalogue.parse(read_text(file), file=str(file))
        service = ReplayService(state.ledger, state.snapshot_of, now_us)
        return await service(document, now_us() - round(days * DAY_US), None)
