"""`breakeven export`: the books as FOCUS 1.3, and every report as CSV or Parquet."""

import sys
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from gateway.cli.cost_filters import filters, why_nothing, with_key_id
from gateway.cli.options import AsOf, Gpus, Since, TimeZone, Until, Where, read
from gateway.cli.state import State, ask, ask_reports
from gateway.counted import counted
from gateway.errors import StateError
from gateway.reports.files import ReportFiles, costs_file
from gateway.reports.forecast_views import DailyQuery, ForecastQuery
from gateway.reports.tables import Format, ReportTable, encode, file_of
from gateway.reports.views import BooksQuery, BreakEvenQuery, CostQuery, PeriodQuery
from gateway.whole_file import whole_file

app = typer.Typer(no_args_is_help=True)

Form = Annotated[Format | None, typer.Option("--format", help="csv or parquet; by the name of --out when left out.")]
Out = Annotated[Path | None, typer.Option("--out", help="The file to write; CSV goes to the terminal without it.")]
By = Annotated[str, typer.Option(help="One to three dimensions, comma separated, as `breakeven costs --by`.")]


@app.command()
def focus(since: Since = None, until: Until = None, as_of: AsOf = None, form: Form = None, out: Out = None) -> None:
    """The books as a FOCUS 1.3 cost and usage dataset, by day; rent and idle GPU capacity are rows of their own."""
    query = read(BooksQuery, since=since, until=until, as_of=as_of)
    form = _form_of(form, out)
    rows, notes = ask_reports(lambda services: _focus(services.files, query, form, out))
    _tell(rows, out, notes)


@app.command()
def costs(
    by: By = "model",
    since: Since = None,
    until: Until = None,
    time_zone: TimeZone = None,
    as_of: AsOf = None,
    where: Where = None,
    form: Form = None,
    out: Out = None,
) -> None:
    """The table of `breakeven costs`, without its total."""
    query = read(CostQuery, by=by, since=since, until=until, time_zone=time_zone, as_of=as_of, **filters(where))
    _write(lambda: ask(lambda state: _costs(state, query)), form, out)


@app.command()
def savings(since: Since = None, until: Until = None, form: Form = None, out: Out = None) -> None:
    """What the same tokens would have cost at one hosted model."""
    query = read(CostQuery, since=since, until=until)
    write(lambda files: files.savings(query), form, out)


@app.command()
def utilisation(since: Since = None, until: Until = None, form: Form = None, out: Out = None) -> None:
    """GPU-seconds used and paid for, hour by hour."""
    query = read(PeriodQuery, since=since, until=until)
    write(lambda files: files.utilisation(query), form, out)


@app.command("break-even")
def break_even(
    since: Since = None, until: Until = None, backend: Gpus = None, form: Form = None, out: Out = None
) -> None:
    """Monthly bills by volume, hosted and owned."""
    query = read(BreakEvenQuery, since=since, until=until, backend=backend)
    write(lambda files: files.break_even(query), form, out)


@app.command()
def forecast(
    days: Annotated[int, typer.Option(min=1, max=366)] = 30, form: Form = None, out: Out = None
) -> None:  # fmt: skip
    """What the next days will cost, with intervals."""
    query = read(ForecastQuery, days=days)
    write(lambda files: files.forecast(query), form, out)


@app.command()
def anomalies(form: Form = None, out: Out = None) -> None:
    """Days whose cost was unusual."""
    write(lambda files: files.anomalies(DailyQuery()), form, out)


def write(wanted: Callable[[ReportFiles], Awaitable[ReportTable]], form: Format | None, out: Path | None) -> None:
    _write(lambda: ask_reports(lambda services: wanted(services.files)), form, out)


def _write(read_table: Callable[[], ReportTable], form: Format | None, out: Path | None) -> None:
    """Notes go to standard error, to keep them out of the file."""
    form = _form_of(form, out)
    table = read_table()
    content = encode(table, form)
    with _destination(out) as write_piece:
        write_piece(content)
    _tell(len(table.rows), out, table.notes)


def _form_of(form: Format | None, out: Path | None) -> Format:
    form = form or ("parquet" if out is not None and out.suffix == ".parquet" else "csv")
    if form == "parquet" and out is None:
        raise typer.BadParameter("Parquet is not text: name a file with --out")
    return form


def _tell(rows: int, out: Path | None, notes: Iterable[str]) -> None:
    if out is not None:
        print(f"{counted(rows, 'row')} in {out}", file=sys.stderr)
    for note in notes:
        print(f"note: {note}", file=sys.stderr)


async def _focus(files: ReportFiles, query: BooksQuery, form: Format, out: Path | None) -> tuple[int, Sequence[str]]:
    """Writes page by page, so that memory stays bounded. Returns the number of rows, and the notes."""
    table = await files.focus(query)
    file, rows = file_of(table.columns, form), 0
    with _destination(out) as write_piece:
        async for page in table.pages:
            rows += len(page.rows)
            write_piece(file.page(page))
        write_piece(file.end())
    return rows, file.notes


@contextmanager
def _destination(out: Path | None) -> Generator[Callable[[bytes], object]]:
    """Standard output, or a file that appears once it is complete."""
    if out is None:
        yield lambda piece: sys.stdout.write(piece.decode())
        return
    try:
        with whole_file(out) as file:
            yield file.write
    except OSError as error:
        raise StateError(f"cannot write {out}: {error.strerror}") from error


async def _costs(state: State, query: CostQuery) -> ReportTable:
    books = (await state.report_services()).books
    query = await with_key_id(state, query)
    table = await books.costs(query)
    file = costs_file(table)
    return replace(file, notes=(*file.notes, *await why_nothing(books, query, table)))
