"""A report as rows of typed columns, and as CSV or Parquet. Knows no report; pyarrow is imported only for Parquet.

Money is decimal, never float. Empty cells are unknown, which is never zero.
"""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Literal

from gateway.errors import StateError

Kind = Literal["text", "decimal", "price", "integer", "float", "boolean", "time"]
"""`decimal` has 12 places (a pico-dollar), `price` 24: a mean price is a quotient."""
Cell = str | Decimal | int | float | bool | datetime | date | None
Format = Literal["csv", "parquet"]
PLACES: Mapping[Kind, int] = {"decimal": 12, "price": 24}
DIGITS = 38
MEDIA_TYPES: Mapping[Format, str] = {"csv": "text/csv; charset=utf-8", "parquet": "application/vnd.apache.parquet"}
FORMULA_STARTS = ("=", "+", "-", "@", "＝", "＋", "－", "＠", "\t", "\r", "\n")
"""The wide ones too: Excel takes what East Asian keyboards write for an operator."""


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    kind: Kind


@dataclass(frozen=True, slots=True)
class ReportTable:
    """`notes` say what a reader must know; they travel in Parquet's metadata."""

    columns: tuple[Column, ...]
    rows: Sequence[Mapping[str, Cell]]
    notes: tuple[str, ...] = ()


def encode(table: ReportTable, form: Format) -> bytes:
    """The file's bytes. Raises StateError where Parquet is asked for and pyarrow is not installed."""
    return to_csv(table).encode() if form == "csv" else to_parquet(table)


def to_csv(table: ReportTable) -> str:
    """RFC 4180 with a header; times are ISO 8601 in UTC, decimals have no exponent."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow([column.name for column in table.columns])
    for row in table.rows:
        writer.writerow([cell_text(row[column.name]) for column in table.columns])
    return out.getvalue()


def cell_text(value: Cell) -> str:
    """What a spreadsheet would take for a formula is quoted by an apostrophe: names come from outside."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    if isinstance(value, Decimal):
        return plain(value)
    if isinstance(value, str) and value.startswith(FORMULA_STARTS):
        return f"'{value}"
    return str(value)


def plain(value: Decimal) -> str:
    """Without exponent and trailing zeros."""
    text = f"{value:f}"
    return (text.rstrip("0").rstrip(".") or "0") if "." in text else text


def to_parquet(table: ReportTable) -> bytes:
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError as error:
        raise StateError("Parquet needs pyarrow: pip install 'breakeven[reports]', or ask for CSV") from error
    types: dict[Kind, Any] = {
        "text": pyarrow.string(),
        "decimal": pyarrow.decimal128(DIGITS, PLACES["decimal"]),
        "price": pyarrow.decimal128(DIGITS, PLACES["price"]),
        "integer": pyarrow.int64(),
        "float": pyarrow.float64(),
        "boolean": pyarrow.bool_(),
        "time": pyarrow.timestamp("us", tz="UTC"),
    }
    notes = {f"note.{number}": note for number, note in enumerate(table.notes, 1)}
    schema = pyarrow.schema([(column.name, types[column.kind]) for column in table.columns], metadata=notes)
    columns = [
        pyarrow.array([row[column.name] for row in table.rows], type=types[column.kind]) for column in table.columns
    ]
    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(pyarrow.Table.from_arrays(columns, schema=schema), sink, compression="zstd")
    return sink.getvalue().to_pybytes()


def apportion(total: int, weights: Sequence[int]) -> list[int]:
    """`total` in whole parts in proportion to `weights`, adding up exactly; the largest remainders get the rest.

    Where all weights are zero the first part gets everything.
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
