"""`breakeven reconcile`: the books beside a provider's own usage or cost export, day by day and model by model."""

import gzip
import zlib
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
from rich.console import Console
from rich.table import Table

from gateway.cli.options import AsJson, ClockIsRight
from gateway.cli.show_table import show_table
from gateway.cli.state import State, ask
from gateway.counted import counted
from gateway.errors import ConfigurationError
from gateway.money import show_exact_usd
from gateway.reports.reconcile_service import book_differences, unbookable, unnamed, view_of
from gateway.reports.reconcile_views import ReconciledRow, ReconciliationView
from gateway.reports.reconciliation import Why
from gateway.storage.sql.adjustments import SqlAdjustments

DAY = ["%Y-%m-%d"]
TO_CSV = {
    "Parquet": "turn it into CSV first, for example with DuckDB: COPY (FROM 'bill.parquet') TO 'bill.csv'",
    "an archive": "unpack it first",
}
SINCE = typer.Option("--since", "--from", formats=DAY, help="The first UTC day; the export's when left out.")
UNTIL = typer.Option("--until", "--to", formats=DAY, help="The day after the last; the export's when left out.")


def command(
    files: Annotated[
        list[Path],
        typer.Argument(
            help="A usage or cost export of OpenAI, Anthropic or OpenRouter, or a bill of Amazon's, Azure's or "
            "Google's: JSON or CSV, plain or gzipped, in one or more files."
        ),
    ],
    provider: Annotated[str, typer.Option(help="The provider's name in the books, such as openai or bedrock.")],
    book: Annotated[
        str | None, typer.Option("--book", help="Book the differences as corrections under this invoice number.")
    ] = None,
    since: Annotated[datetime | None, SINCE] = None,
    until: Annotated[datetime | None, UNTIL] = None,
    named: Annotated[
        list[str] | None, typer.Option("--named", help="THEIRS=OURS: which of our models a name of the export means.")
    ] = None,
    clock_is_right: ClockIsRight = False,
    as_json: AsJson = False,
) -> None:
    """Compare the books with a provider's export: ours, theirs, the difference and its likely reason. A month should
    agree within half a per cent."""
    export = [read_export(file) for file in files]
    days = (since and since.date(), until and until.date())
    ours = names_of(named or [])
    view, booked = ask(lambda state: _reconcile(state, provider, export, days, book, ours, trusts_clock=clock_is_right))
    if as_json:
        print(view.model_dump_json(indent=2))
    else:
        show(view, Console(highlight=False))
        if book is not None:
            print(said_of(booked, book))


def read_export(file: Path) -> str:
    """The text of a file, which may be gzipped. Raises ConfigurationError."""
    try:
        content = file.read_bytes()
        if content.startswith((b"PAR1", b"PK")):
            kind = "Parquet" if content.startswith(b"PAR1") else "an archive"
            raise ConfigurationError(f"cannot be read: it is {kind}; {TO_CSV[kind]}", file=str(file))
        return (gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content).decode("utf-8-sig")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        said = (isinstance(error, OSError) and error.strerror) or "it is not text in UTF-8, plain or gzipped"
        raise ConfigurationError(f"cannot be read: {said}", file=str(file)) from error


def names_of(named: Sequence[str]) -> dict[str, str]:
    """Raises ConfigurationError."""
    pairs = [text.partition("=") for text in named]
    for theirs, _, ours in pairs:
        if not (theirs.strip() and ours.strip()):
            raise ConfigurationError('--named takes THEIRS=OURS, such as --named "gpt 5.4=my-deployment"')
    return {theirs: ours for theirs, _, ours in pairs}


class Booked(NamedTuple):
    """How many differences were booked now, were booked under this number before, cannot be booked, and are not because
    the bill may have them under another name."""

    new: int
    before: int
    unbookable: int
    unnamed: int = 0


def said_of(booked: Booked, book: str) -> str:
    """What became of the differences."""
    said = [f"{counted(booked.new, 'difference')} booked under {book!r}."]
    if booked.before:
        said.append(
            f"{booked.before} were booked under it before and the books have changed since: book what remains under "
            f"another number, such as {book}-2."
        )
    if booked.unbookable:
        said.append(f"{booked.unbookable} cannot be booked: there is no request of ours of that day and model.")
    if booked.unnamed:
        said.append(
            f"{booked.unnamed} were not booked, because a meter that we do not know may be that model: say which with "
            "--named."
        )
    return " ".join(said)


async def _reconcile(
    state: State,
    provider: str,
    export: Sequence[str],
    days: tuple[date | None, date | None],
    book: str | None,
    named: Mapping[str, str],
    *,
    trusts_clock: bool,
) -> tuple[ReconciliationView, Booked]:
    compared = await (await state.report_services()).reconciliations.compare(provider, export, *days, named=named)
    view = view_of(compared)
    if book is None:
        return view, Booked(0, 0, 0)
    store = SqlAdjustments(state.database, trusts_clock=trusts_clock)
    new = await book_differences(compared, store, reference=book, author="breakeven reconcile")
    different = sum(bool(row.difference_pico_usd) for row in compared.rows)
    unbooked, held = unbookable(compared), unnamed(compared)
    return view, Booked(new, different - new - unbooked - held, unbooked, held)


def show(view: ReconciliationView, console: Console) -> None:
    table = Table("day", "model", "ours $", "theirs $", "difference $", "likely reason", box=None)
    for row in view.rows:
        table.add_row(
            str(row.day),
            row.model or "(none)",
            our_cell(row),
            *cells(row.their_usd, row.difference_usd),
            row.likely_reason,
        )
    show_table(table)
    if view.their_usd is None or view.difference_usd is None:
        console.print("Their export has no dollars: only tokens were compared.")
        return
    share = "" if view.difference_share is None else f" ({view.difference_share:+.2%})"
    verdict = f"{'agrees' if view.agrees else 'does not agree'} {Why.agrees}"
    console.print(
        f"{view.provider}, {view.first_day} to {view.last_day}: ours {show_exact_usd(view.our_usd)}, "
        f"theirs {show_exact_usd(view.their_usd)}, difference {show_exact_usd(view.difference_usd)}{share}: {verdict}."
    )
    parts = (f"{what} {show_exact_usd(usd) if usd else 'not in USD'}" for what, usd in view.left_out_usd.items())
    if left_out := ", ".join(parts):
        console.print(f"Left out of their bill: {left_out}.")


def our_cell(row: ReconciledRow) -> str:
    """If no request of that day and model has a known price, the cost is unknown, not $0."""
    is_unknown = row.our_unpriced_requests and row.our_unpriced_requests == row.our_requests
    return "unknown" if is_unknown and not Decimal(row.our_usd) else cells(row.our_usd)[0]


def cells(*texts: str | None) -> list[str]:
    return ["" if text is None else f"{Decimal(text):.6f}" for text in texts]
