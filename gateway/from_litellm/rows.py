"""Rows of LiteLLM's database, or of its API, as plain values. Pure: opens nothing."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final, cast

from gateway.errors import ConfigurationError
from gateway.from_litellm.fields import KEYS, TAKEN, TEAMS, TOLD
from gateway.instants import microseconds
from gateway.limits.values import MOST_COUNT

Row = Mapping[str, Any]
NO_LABEL: Final = re.compile(r"[^\w .:/@-]")
LONGEST_LABEL: Final = 64
NEVER: Final = re.compile(r"infinity|\d{5,}-.*")
TIMES: Final = ("expires", "budget_reset_at")
DIGEST: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Rows:
    """By table. `is_whole` is False if they come from the API, which lists only keys and teams."""

    tables: Mapping[str, Sequence[Row]] = field(repr=False)
    is_whole: bool = True

    def of(self, table: str) -> Sequence[Row]:
        return self.tables.get(table, ())


def parse_row(text: str) -> Row:
    """Parses floats as decimals, so that no digit changes."""
    return cast("Row", json.loads(text, parse_float=Decimal))


def parse_answers(texts: Mapping[str, str]) -> Rows:
    """Answers of `/key/list?return_full_object=true` and `/team/list`, by their file names, in any order and number.

    Raises ConfigurationError.
    """
    keys: dict[str, Row] = {}
    teams: dict[str, Row] = {}
    for file, text in texts.items():
        try:
            answer: Any = json.loads(text, parse_float=Decimal)
        except ValueError as error:
            raise ConfigurationError("is not JSON", file=file) from error
        listed = answer.get("keys", answer.get("teams")) if isinstance(answer, dict) else answer
        for one in cast("list[Any]", listed) if isinstance(listed, list) else [None]:
            if isinstance(one, dict) and "token" in one:
                keys[str(one["token"])] = _with_times(cast("Row", one), file)
            elif isinstance(one, dict) and "team_id" in one:
                teams[str(one["team_id"])] = _with_times(cast("Row", one), file)
            else:
                raise ConfigurationError(
                    "is not an answer of LiteLLM's `/key/list?return_full_object=true&size=100` or `/team/list`",
                    file=file,
                )
    told = {KEYS: [_asked(one, KEYS) for one in keys.values()], TEAMS: [_asked(one, TEAMS) for one in teams.values()]}
    return Rows(told, is_whole=False)


def _with_times(row: Row, file: str) -> Row:
    """The row itself. Raises ConfigurationError if a time in it cannot be read; those of the database always can."""
    for fields in (row, fields_of(row.get("litellm_budget_table"))):
        for name in TIMES:
            try:
                moment_us(fields.get(name))
            except (ValueError, OverflowError) as error:
                raise ConfigurationError(f"{name}: {fields[name]!r} is not a time", file=file) from error
    return row


def _asked(row: Row, table: str) -> Row:
    """Only the columns of the database: the API adds fields of its own."""
    return {name: value for name, value in row.items() if name in TAKEN[table] | TOLD.keys() | {"litellm_budget_table"}}


def is_said(value: object) -> bool:
    return value not in (None, "", [], {}, False)


def fields_of(value: object) -> Row:
    """A JSON column's fields; LiteLLM writes some of these columns as text."""
    if isinstance(value, str):
        try:
            value = json.loads(value, parse_float=Decimal)
        except ValueError:
            return {}
    return cast("Row", value) if isinstance(value, dict) else {}


def names_of(value: object) -> list[str]:
    return [str(one) for one in cast("list[object]", value)] if isinstance(value, list) else []


def moment_us(value: object) -> int | None:
    """LiteLLM's columns have no time zone and are UTC. PostgreSQL's range of times is wider than Python's."""
    if not isinstance(value, str) or not value or NEVER.fullmatch(value):
        return None
    if value == "-infinity" or value.endswith("BC"):
        return 0
    at = datetime.fromisoformat(value)
    return microseconds(at if at.tzinfo is not None else at.replace(tzinfo=UTC))


def digest_of(row: Row) -> bytes | None:
    """The SHA-256 of a key's secret; None if the row has no such digest."""
    token = str(row.get("token") or "")
    return bytes.fromhex(token) if DIGEST.fullmatch(token) else None


def as_label(text: str) -> str:
    """Replaces characters that our names cannot have, and cuts the length. May be empty."""
    return NO_LABEL.sub("-", text).strip()[:LONGEST_LABEL].strip()


def whole(value: object) -> int | None:
    """A limit. None also for one that nothing reaches: LiteLLM itself writes `sys.maxsize` for none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value <= MOST_COUNT else None


def distinct_labels(rows: Sequence[Row], *, key: str, alias: str) -> Iterator[tuple[str, str]]:
    """Id -> label: its alias, with the beginning of its id if others have the same alias."""
    labels = [(str(row[key]), as_label(str(row.get(alias) or row[key]))) for row in rows]
    taken = Counter(label for _, label in labels)
    for its_id, label in labels:
        yield its_id, label if taken[label] == 1 else f"{label[: LONGEST_LABEL - 10]} {as_label(its_id)[:8]}"
