"""The schema's revisions by number, and a database's present one. Read-only, and therefore without Alembic.

Every gateway and command checks this at start, nearly always to find nothing to do: importing Alembic for it was a
twentieth of the CPU of a start.
"""

from functools import cache
from importlib.resources import files

from sqlalchemy import Connection, column, inspect, select, table, text

from gateway.errors import StateError
from gateway.storage.tables import metadata


@cache
def known_revisions() -> list[str]:
    """This version's revisions, oldest first: the file name of each begins with its number."""
    names = (file.name for file in files("migrations.versions").iterdir())
    return sorted(name.partition("_")[0] for name in names if name[:1].isdigit() and name.endswith(".py"))


def newest_revision() -> str:
    """The revision that this version migrates to."""
    return known_revisions()[-1]


def present_revision(connection: Connection) -> str | None:
    """None: no schema yet. Raises StateError if the version table has more than one row."""
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
    """Tables of the newest schema that a query would not find."""
    wanted = sorted(metadata.tables)
    if connection.dialect.name == "postgresql":  # in any schema of the search path, as queries find them
        seen = text("SELECT name FROM unnest(CAST(:names AS text[])) AS name WHERE to_regclass(name) IS NOT NULL")
        there = set(connection.execute(seen, {"names": wanted}).scalars())
    else:
        there = set(inspect(connection).get_table_names())
    return [name for name in wanted if name not in there]
