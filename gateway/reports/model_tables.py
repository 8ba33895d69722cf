"""Converts rows of any API report to a table for files, with the names and types of its model. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any, get_args

from pydantic import BaseModel

from gateway.reports.tables import Cell, Column, Kind, ReportTable

KINDS: Mapping[type, Kind] = {
    bool: "boolean",
    int: "integer",
    float: "float",
    datetime: "time",
    str: "text",
    date: "text",
}
GROUP = "group"


def table_of(
    model: type[BaseModel], rows: Iterable[BaseModel], *, by: Sequence[str] = (), notes: Sequence[str] = ()
) -> ReportTable:
    """`by` names the values of `group`, which become the first columns. Dollar text becomes decimal."""
    fields = model.model_fields.items()
    figures: list[tuple[str, Kind]] = [(name, _kind(name, field.annotation)) for name, field in fields if name != GROUP]
    columns = (*(Column(name, "text") for name in by), *(Column(name, kind) for name, kind in figures))
    return ReportTable(columns, [_row(row, by, figures) for row in rows], tuple(notes))


def _row(row: BaseModel, by: Sequence[str], figures: Sequence[tuple[str, Kind]]) -> dict[str, Cell]:
    groups: Mapping[str, str | None] = getattr(row, GROUP, {})
    cells: dict[str, Cell] = {name: groups[name] for name in by}
    return cells | {name: _cell(getattr(row, name), kind) for name, kind in figures}


def _cell(value: Any, kind: Kind) -> Cell:
    if kind == "decimal" and value is not None:
        return Decimal(value)
    return value.isoformat() if kind == "text" and isinstance(value, date) else value


def _kind(name: str, annotation: Any) -> Kind:
    """The kind of `X` or `X | None`. Dollars are text in JSON, so that no reader turns them into floats."""
    inner = next((one for one in get_args(annotation) if one is not type(None)), annotation)
    if inner is str and name.endswith(("_usd", "_usd_per_mtok")):
        return "decimal"
    return KINDS[inner]
