"""A report as CSV and Parquet: both have the same content, whole or in pages, and no cell is misread."""

import csv
import io
from datetime import datetime
from decimal import Decimal

import pytest

from gateway.reports.focus import focus_table
from gateway.reports.focus_columns import COLUMNS
from gateway.reports.tables import Cell, Format, ReportTable, apportion, cell_text, encode, file_of
from tests.unit.gateway.reports.focus_month import (
    COSTS,
    NAMES,
    PERIOD,
    a_month,
    make_sums,
)


def test_csv_and_parquet_hold_the_same() -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="Parquet needs pyarrow: pip install 'breakeven[reports]'")
    import pyarrow

    table = a_month()
    read = parquet.read_table(pyarrow.BufferReader(encode(table, "parquet")))
    assert read.schema.names == [column.name for column in COLUMNS]
    assert str(read.schema.field("BilledCost").type) == "decimal128(38, 12)"
    assert str(read.schema.field("ChargePeriodStart").type) == "timestamp[us, tz=UTC]"
    assert read.schema.metadata[b"note.1"] == b"FOCUS 1.3"
    lines = list(csv.DictReader(io.StringIO(encode(table, "csv").decode())))
    assert len(lines) == read.num_rows == len(table.rows)
    for line, row in zip(lines, read.to_pylist(), strict=True):
        for name in COSTS:
            assert Decimal(line[name]) == row[name]
        assert datetime.fromisoformat(line["ChargePeriodStart"]) == row["ChargePeriodStart"]
        assert (line["Tags"] or None) == row["Tags"]


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_a_file_of_pages_holds_what_one_of_a_page_does(form: Format) -> None:
    table = a_month()
    half = len(table.rows) // 2
    file = file_of(COLUMNS, form)
    pages = [
        ReportTable(COLUMNS, table.rows[:half], table.notes[:1]),
        ReportTable(COLUMNS, table.rows[half:], table.notes),
    ]
    content = b"".join([*map(file.page, pages), file.end()])
    assert tuple(file.notes) == table.notes
    if form == "csv":
        assert content == encode(table, "csv")
        return
    parquet = pytest.importorskip("pyarrow.parquet", reason="Parquet needs pyarrow: pip install 'breakeven[reports]'")
    read, at_once = (parquet.read_table(io.BytesIO(one)) for one in (content, encode(table, "parquet")))
    assert read.equals(at_once, check_metadata=True)
    assert read.schema.metadata[b"note.2"].decode() == table.notes[1]


def test_a_file_without_a_page_has_its_columns() -> None:
    assert file_of(COLUMNS, "csv").end() == encode(ReportTable(COLUMNS, ()), "csv")
    parquet = pytest.importorskip("pyarrow.parquet", reason="Parquet needs pyarrow: pip install 'breakeven[reports]'")
    read = parquet.read_table(io.BytesIO(file_of(COLUMNS, "parquet").end()))
    assert (read.num_rows, read.schema.names) == (0, [column.name for column in COLUMNS])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Decimal("0.072"), "0.072000"),
        (Decimal("-1234.567"), "-1234.567000"),
        (Decimal("2.5"), "2.500000"),
        (Decimal(3), "3.000000"),
        (Decimal("0.000000000005"), "0.000000000005"),
        (0.5, "0.500000"),
        (1.5e-07, "1.5e-07"),
        (1000, "1000"),
    ],
)
def test_a_spreadsheet_that_writes_decimals_with_a_comma_takes_none_for_another_number(value: Cell, text: str) -> None:
    """It read 0.072 as 72, and three such cells in a column of fractions were its whole sum."""
    assert cell_text(value) == text


def test_no_cell_becomes_a_formula_of_a_spreadsheet() -> None:
    rows = focus_table([make_sums(group={"team": "=HYPERLINK(1)"})], [], PERIOD, NAMES)
    assert "'=HYPERLINK(1)" in encode(rows, "csv").decode()
    assert len({cell_text(text) for text in ("=1", "'=1", "''=1", "it's")}) == 4, "no two names become one"
    negative = focus_table([make_sums(adjustment_pico_usd=-5, adjusted_requests=1)], [], PERIOD, NAMES)
    assert ",-0.000000000005," in encode(negative, "csv").decode(), "a negative number stays one"


@pytest.mark.parametrize(
    ("whole", "weights", "parts"),
    [
        (10, [1, 1, 1], [4, 3, 3]),
        (0, [5, 5], [0, 0]),
        (7, [0, 0], [7, 0]),
        (10**18 + 1, [1, 10**15, 3], None),
    ],
)
def test_apportioning_adds_up(whole: int, weights: list[int], parts: list[int] | None) -> None:
    found = apportion(whole, weights)
    assert sum(found) == whole
    assert parts is None or found == parts
