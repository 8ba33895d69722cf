"""The schema's revisions by number, and at which a database is. Changes nothing, and so does without Alembic.

Each gateway and each command asks this when it starts, nearly always to find nothing to do: importing Alembic for it
was a twentieth of the CPU of a start.
"""

from functools import cache
from importlib.resources import files

from sqlalchemy import Connection, column, inspect, select, table, text

from gateway.errors import StateError
from gateway.storage.tables import metadata


@cache
def known_revisions() -> list[str]:
    """Those of this version, oldest first: each step's file begins with its number."""
    names = (file.name for file in files("migrations.versions").iterdir())
    return sorted(name.partition("_")[0] for name in names if name[:1].isdigit() and name.endswith(".py"))


def newest_revision() -> str:
    """What this version brings a schema to."""
    return known_revisions()[-1]


def present_revision(connection: Connection) -> str | None:
    """None: no schema yet. Raises StateError where the table that says it holds more than one."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    said = connection.execute(select(column("version_num")).select_from(table("alembic_version"))).scalars().all()
    if len(said) > 1:
        raise StateError(
            f"the table alembic_version says {' and '.join(sorted(said))}, and a schema is at one: "
            "leave the row that is true of this database and delete the others, or restore a backup"
        )
    return said[0] if said else None


def missing_tables(connection: Connection) -> list[str]:
    """Of the newest schema, those that a question would not find."""
    wanted = sorted(metadata.tables)
    if connection.dialect.name == "postgresql":  # in any schema of the search path, as questions find them
        seen = text("SELECT name FROM unnest(CAST(:names AS text[])) AS name WHERE to_regclass(name) IS NOT NULL")
        there = set(connection.execute(seen, {"names": wanted}).scalars())
    else:
        there = set(inspect(connection).get_table_names())
    return [name for name in wanted if name not in there]
