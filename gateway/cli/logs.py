"""`breakeven logs`: lists ledger entries, or shows one in full; its prompt and answer only with `--bodies`."""

import typer
from rich.console import Console
from rich.table import Column, Table

from gateway.api.admin.bodies import read_bodies
from gateway.api.admin.entries import find_summaries, get_detail
from gateway.api.admin.entry_views import EntryFilter, EntrySummary
from gateway.cli.options import AsJsonLines, read
from gateway.cli.show_table import show_table
from gateway.cli.state import State, ask
from gateway.instants import moment_of
from gateway.money import plain
from gateway.storage.sql.bodies import SqlBodies
from gateway.storage.sql.entries import SqlEntries


def command(
    request_id: str = typer.Argument("", help="One request in full: the x-breakeven-request-id of its answer."),
    since: str | None = typer.Option(None, "--since", "--from", help="ISO 8601; the ledger's start when left out."),
    until: str | None = typer.Option(None, "--until", "--to", help="ISO 8601, exclusive; now when left out."),
    model: str | None = typer.Option(None, help="Only this model's answers."),
    team: str | None = typer.Option(None, help="Only this team's."),
    project: str | None = typer.Option(None, help="Only this project's."),
    key: str | None = typer.Option(None, help="Only this key's: its id, as `breakeven keys list` shows it."),
    backend: str | None = typer.Option(None, help="Only what this backend answered."),
    rule: str | None = typer.Option(None, help="Only what this rule decided."),
    tag: str | None = typer.Option(None, help="Only what carries this tag."),
    batch: str | None = typer.Option(None, help="Only this batch's: its id, as `breakeven batches list` shows it."),
    end_user: str | None = typer.Option(None, help="Only those made for this end user, if they are recorded."),
    status: str | None = typer.Option(None, help="completed, partial, cancelled, failed or orphaned."),
    order: str = typer.Option("newest", help="What comes first: newest, cost, total_time or first_token."),
    limit: int = typer.Option(20, min=1, max=500, help="How many at most."),
    bodies: bool = typer.Option(False, "--bodies", help="With a request id: its stored prompt and answer."),
    as_json: AsJsonLines = False,
) -> None:
    """List requests, or show one: what was asked of which model, what it cost and how fast it was."""
    if bodies and not request_id:
        raise typer.BadParameter("name one request: breakeven logs REQUEST_ID --bodies", param_hint="--bodies")
    if request_id and bodies:
        found = ask(lambda state: read_bodies(_bodies(state), request_id, reader="command line"))
        print(found.model_dump_json(indent=None if as_json else 2))
        return
    if request_id:
        one = ask(lambda state: get_detail(SqlEntries(state.database), request_id))
        if as_json:
            print(one.model_dump_json())
        else:
            Console(highlight=False).print_json(one.model_dump_json())
        return
    asked = read(
        EntryFilter, since=since, until=until, model=model, team=team, project=project, key_id=key, backend=backend,
        rule=rule, tag=tag, batch_id=batch, end_user=end_user, status=status, order=order,
        limit=limit,
    )  # fmt: skip
    found = ask(lambda state: find_summaries(SqlEntries(state.database), asked.wanted()))
    if as_json:
        for one in found:
            print(one.model_dump_json())
    elif found:
        show_table(_table(found))
    else:
        print("No such requests.")


def _bodies(state: State) -> SqlBodies:
    return SqlBodies(state.database, state.deployment.home.bodies_key())


def _table(found: list[EntrySummary]) -> Table:
    table = Table(Column("time (UTC)", no_wrap=True), "model", "team", "rule", "status", box=None)
    is_any_corrected = any(one.corrected_cost_usd != one.cost_usd for one in found)
    for name in ("in", "out", "first token s", "tok/s", "cost $", *(["corrected $"] if is_any_corrected else [])):
        table.add_column(name, justify="right", no_wrap=name.endswith("$"))
    for one in found:
        table.add_row(
            moment_of(one.accepted_at_us).strftime("%Y-%m-%d %H:%M:%S"),
            one.model + (" (simulated)" if one.is_simulated else ""),
            one.team or "",
            one.rule,
            one.status.value,
            f"{one.input_tokens:,}",
            f"{one.output_tokens:,}",
            _number(one.time_to_first_token_seconds, 2),
            _number(one.decode_tokens_per_second, 1),
            _dollars(one.cost_usd),
            *([_dollars(one.corrected_cost_usd)] if is_any_corrected else []),
        )
    return table


def _dollars(text: str | None) -> str:
    return "unknown" if text is None else plain(text)


def _number(value: float | None, places: int) -> str:
    return "" if value is None else f"{value:.{places}f}"
