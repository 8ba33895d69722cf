"""A report's filters, as SQL conditions and as a test of a single dimension."""

import json
from typing import Any

from sqlalchemy import ColumnElement, func, literal

from gateway.storage.rows.dimension import Dimension
from gateway.storage.tables.books import dimensions, entries
from gateway.sums import SumsQuery

COLUMNS = {
    "key": "key_id",
    **{name: name for name in ("model", "team", "project", "backend", "provider", "rule", "status", "operation")},
    "upstream_model": "upstream_model",
    "is_simulated": "is_simulated",
    "tag": "tags",
    "tags": "tags",
    "end_user": "end_user",
}


def conditions(query: SumsQuery) -> list[ColumnElement[Any]]:
    """Conditions on rows joined with their dimension; `of_end_user` has the one on the requests."""
    found: list[ColumnElement[Any]] = []
    for name, value in query.filters.items():
        if name == "end_user":
            continue
        if name == "tag":
            found.append(dimensions.c.tags == "[]" if value is None else has_tag(value))
        elif name == "is_simulated":
            found.append(dimensions.c.is_simulated.is_(value == "true"))
        else:
            found.append(dimensions.c[COLUMNS[name]].is_not_distinct_from(value))
    return found


def of_end_user(query: SumsQuery) -> list[ColumnElement[bool]]:
    """The filter by end user, if any, as a condition on requests."""
    if "end_user" not in query.filters:
        return []
    return [entries.c.end_user.is_not_distinct_from(query.filters["end_user"])]


def meets(dimension: Dimension, query: SumsQuery) -> bool:
    """Whether the dimension meets the filters, but for that by end user."""
    for name, value in query.filters.items():
        if name == "end_user":
            continue
        if name == "tag":
            tags = json.loads(dimension.tags)
            is_met = not tags if value is None else value in tags
        elif name == "is_simulated":
            is_met = dimension.is_simulated == (value == "true")
        else:
            is_met = getattr(dimension, COLUMNS[name]) == value
        if not is_met:
            return False
    return True


def has_tag(tag: str) -> ColumnElement[bool]:
    """Tags are a JSON array of strings without commas: each is between two once the brackets are commas too. Not LIKE,
    for which `Prod` is `prod` on SQLite, and not without the commas: `b` would be in `a"b`."""
    tags = dimensions.c.tags
    each = literal(",").concat(func.substr(tags, 2, func.length(tags) - 2)).concat(",")
    return func.replace(each, f",{json.dumps(tag, ensure_ascii=False)},", "") != each
