"""The schema's revisions: what each adds, how to reach one, and what a lower one cannot hold. Knows no URL."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import (
    Boolean,
    Column,
    ColumnElement,
    Connection,
    Integer,
    MetaData,
    Table,
    create_engine,
    func,
    inspect,
    select,
    true,
)

from gateway.errors import StateError
from gateway.storage.revisions import known_revisions, newest_revision, present_revision

MADE_AGAIN = frozenset({"largest_pico_usd", "largest_total_us", "largest_first_token_us", "ranked"})
"""Derived columns, whose loss does not matter: upgrading recomputes them from the requests."""


@dataclass(frozen=True, slots=True)
class Revision:
    """One schema migration, by number."""

    number: str
    summary: str


@dataclass(frozen=True, slots=True)
class Loss:
    """A table or column that a lower revision lacks, and how many rows have data there."""

    table: str
    column: str | None
    rows: int


def revisions() -> list[Revision]:
    """Oldest first."""
    steps = _scripts().walk_revisions()
    return [Revision(one.revision, (one.doc or "").rstrip(".")) for one in steps][::-1]


def bring_to(connection: Connection, revision: str) -> None:
    """Up or down; "head" is the newest, "base" is empty. Raises StateError for an unknown schema."""
    if revision == "head" and present_revision(connection) == newest_revision():
        return
    config = alembic_config()
    config.attributes["connection"] = connection
    try:
        if revision == "head" or _is_ahead(revision, connection):
            command.upgrade(config, revision)
        else:
            command.downgrade(config, revision)
    except CommandError as error:
        raise StateError(
            f"the database was written by a newer Breakeven ({error}); start that version or a newer one, or restore "
            "the backup from before the upgrade"
        ) from error


def losses(connection: Connection, revision: str) -> list[Loss]:
    """What a downgrade to `revision` would lose. Read-only: the two schemas are compared in memory."""
    present = present_revision(connection)
    if present is None:
        return []
    above, below = _tables(present), _tables(revision)
    return [loss for name, table in sorted(above.items()) for loss in _lost(connection, table, below.get(name))]


def require_revision(number: str) -> None:
    """Raises StateError if this version does not have that revision."""
    known = known_revisions()
    if number not in known:
        raise StateError(f"there is no schema {number}: this version knows {known[0]} to {known[-1]}")


def alembic_config() -> Config:
    """Finds the packaged migrations by import name, so that no file of the project directory is needed."""
    config = Config()
    config.set_main_option("script_location", "migrations:")
    config.set_main_option("path_separator", "os")
    return config


@cache
def _scripts() -> ScriptDirectory:
    """The packaged migrations, which do not change while a process runs."""
    return ScriptDirectory.from_config(alembic_config())


def _is_ahead(revision: str, connection: Connection) -> bool:
    """Whether reaching `revision` is an upgrade."""
    present = present_revision(connection)
    if present is None or revision == "base":
        return revision != "base"
    older = _scripts().iterate_revisions(revision, "base")
    return present in {one.revision for one in older}


def _tables(revision: str) -> dict[str, Table]:
    engine = create_engine("sqlite://")
    try:
        with engine.begin() as connection:
            bring_to(connection, revision)
            names = inspect(connection).get_table_names()
            found = MetaData()
            return {name: Table(name, found, autoload_with=connection) for name in names}
    finally:
        engine.dispose()


def _lost(connection: Connection, table: Table, below: Table | None) -> Iterator[Loss]:
    if below is None:
        rows = connection.execute(select(func.count()).select_from(table)).scalar_one()
        yield Loss(table.name, None, rows)
        return
    for column in table.columns:
        if column.name not in below.columns and column.name not in MADE_AGAIN:
            rows = connection.execute(select(func.count()).select_from(table).where(_says_something(column)))
            yield Loss(table.name, column.name, rows.scalar_one())


def _says_something(column: Column[Any]) -> ColumnElement[bool]:
    """Whether the value differs from that of a row written before the column existed."""
    if column.nullable:
        return column.is_not(None)
    if isinstance(column.type, Boolean):
        return column.is_(true())
    return column != 0 if isinstance(column.type, Integer) else true()
