"""A report as rows of typed columns, and as CSV or Parquet. Knows no report; pyarrow is imported only for Parquet.

Money is decimal, never float. Empty cells are unknown, which is never zero.
"""

import csv
import io
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Literal, Protocol

from gateway.errors import StateError
from gateway.extras import missing_here
from gateway.money import plain

Kind = Literal["text", "decimal", "price", "integer", "float", "boolean", "time"]
"""`decimal` has 12 places (a pico-dollar), `price` 24: a mean price is a quotient."""
Cell = str | Decimal | int | float | bool | datetime | date | None
Format = Literal["csv", "parquet"]
PLACES: Mapping[Kind, int] = {"decimal": 12, "price": 24}
DIGITS = 38
LEAST_PLACES = 6
MEDIA_TYPES: Mapping[Format, str] = {"csv": "text/csv; charset=utf-8", "parquet": "application/vnd.apache.parquet"}
FORMULA_STARTS = ("=", "+", "-", "@", "＝", "＋", "－", "＠", "\t", "\r", "\n")
"""Includes full-width characters: Excel takes those of East Asian keyboards for operators too."""


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    kind: Kind


@dataclass(frozen=True, slots=True)
class ReportTable:
    """`notes` are what a reader must know; Parquet carries them as metadata."""

    columns: tuple[Column, ...]
    rows: Sequence[Mapping[str, Cell]]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PagedTable:
    """A report that may not fit in memory: pages are created on demand, all with the same columns."""

    columns: tuple[Column, ...]
    pages: AsyncIterator[ReportTable]


class File(Protocol):
    """A file's bytes, page by page. `notes` are those of all pages so far, each once."""

    @property
    def notes(self) -> Sequence[str]: ...

    def page(self, table: ReportTable) -> bytes: ...

    def end(self) -> bytes: ...


def file_of(columns: tuple[Column, ...], form: Format) -> File:
    """An empty file. Raises StateError for Parquet if pyarrow is not installed."""
    return CsvFile(columns) if form == "csv" else ParquetFile(columns)


def encode(table: ReportTable, form: Format) -> bytes:
    """The file's bytes. Raises StateError as `file_of` does."""
    file = file_of(table.columns, form)
    return file.page(table) + file.end()


def to_csv(table: ReportTable) -> str:
    return encode(table, "csv").decode()


class CsvFile:
    """RFC 4180 with a header; times are ISO 8601 in UTC, decimals have no exponent."""

    def __init__(self, columns: tuple[Column, ...]) -> None:
        self._names = [column.name for column in columns]
        self._is_begun = False
        self.notes: list[str] = []

    def page(self, table: ReportTable) -> bytes:
        _add_new(self.notes, table.notes)
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\r\n")
        if not self._is_begun:
            self._is_begun = True
            writer.writerow(self._names)
        for row in table.rows:
            writer.writerow([cell_text(row[name]) for name in self._names])
        return out.getvalue().encode()

    def end(self) -> bytes:
        """The header, if the file has no page."""
        return b"" if self._is_begun else self.page(ReportTable((), ()))


def cell_text(value: Cell) -> str:
    """Text that a spreadsheet would take for a formula gets a leading apostrophe: names come from outside. So does text
    that has one already, or two tags would look alike."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    if isinstance(value, Decimal):
        return _unmistakable(plain(value))
    if isinstance(value, float):
        return _unmistakable(str(value))
    if isinstance(value, str) and value.lstrip("'").startswith(FORMULA_STARTS):
        return f"'{value}"
    return str(value)


def _unmistakable(number: str) -> str:
    """At least six decimal places: a spreadsheet with decimal commas reads 0.072 as 72 and 2.5 as a date. With six it
    keeps the whole column as text, which is safer than a sum that silently leaves some out."""
    whole, _, places = number.partition(".")
    return f"{whole}.{places:0<{LEAST_PLACES}}" if whole.lstrip("-").isdecimal() and "e" not in places else number


class ParquetFile:
    """A page is a row group; the notes are in the file's metadata, which comes last."""

    def __init__(self, columns: tuple[Column, ...]) -> None:
        try:
            import pyarrow
            import pyarrow.parquet
        except ModuleNotFoundError as error:
            raise StateError(f"Parquet needs pyarrow: {missing_here('reports')}; or ask for CSV") from error
        types: dict[Kind, Any] = {
            "text": pyarrow.string(),
            "decimal": pyarrow.decimal128(DIGITS, PLACES["decimal"]),
            "price": pyarrow.decimal128(DIGITS, PLACES["price"]),
            "integer": pyarrow.int64(),
            "float": pyarrow.float64(),
            "boolean": pyarrow.bool_(),
            "time": pyarrow.timestamp("us", tz="UTC"),
        }
        self._arrow: Any = pyarrow
        self._schema = pyarrow.schema([(column.name, types[column.kind]) for column in columns])
        self._written = _Written()
        # Without the embedded Arrow schema, which would hide the notes from readers of the file's schema.
        self._writer: Any = pyarrow.parquet.ParquetWriter(
            self._written, self._schema, compression="zstd", store_schema=False
        )
        self.notes: list[str] = []

    def page(self, table: ReportTable) -> bytes:
        _add_new(self.notes, table.notes)
        columns = [self._arrow.array([row[one.name] for row in table.rows], type=one.type) for one in self._schema]
        self._writer.write_table(self._arrow.Table.from_arrays(columns, schema=self._schema))
        return self._written.take()

    def end(self) -> bytes:
        self._writer.add_key_value_metadata({f"note.{number}": note for number, note in enumerate(self.notes, 1)})
        self._writer.close()
        return self._written.take()


class _Written(io.RawIOBase):
    """Buffers what the Parquet writer writes until it is taken."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, piece: Any, /) -> int:
        self._pieces.append(bytes(piece))
        return len(self._pieces[-1])

    def take(self) -> bytes:
        taken, self._pieces = b"".join(self._pieces), []
        return taken


def _add_new(notes: list[str], more: Iterable[str]) -> None:
    notes += [note for note in more if note not in notes]


def apportion(total: int, weights: Sequence[int]) -> list[int]:
    """Splits `total` into integers proportional to `weights` that add up exactly; the largest remainders get the rest.

    If all weights are zero, the first part gets everything.
    """
    whole = sum(weights)
    if not whole:
        return [total if place == 0 else 0 for place in range(len(weights))]
    parts = [total * weight // whole for weight in weights]
    order = sorted(range(len(weights)), key=lambda place: (-(total * weights[place] % whole), place))
    for place in order[: total - sum(parts)]:
        parts[place] += 1
    return parts


def columns_of(names: Iterable[tuple[str, Kind]]) -> tuple[Column, ...]:
    return tuple(Column(name, kind) for name, kind in names)
