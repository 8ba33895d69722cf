"""Reads rows of LiteLLM's own database as JSON, all from one snapshot. Writes nothing there."""

from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import parse_qsl, urlencode

from sqlalchemy import Text, cast, func, literal_column, select, table, text
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.config.addresses import parse_database_url
from gateway.errors import StateError
from gateway.storage.database import open_database
from gateway.storage.postgres import Patience

OF_PRISMA: Final = frozenset(
    {
        "schema", "connection_limit", "pool_timeout", "connect_timeout", "socket_timeout", "pgbouncer",
        "statement_cache_size", "sslaccept", "sslidentity", "sslpassword", "options", "application_name",
    }
)  # fmt: skip
"""Parameters of LiteLLM's DATABASE_URL that are meant for its own driver."""
READING: Final = Patience(statement_seconds=None)


def parse_litellm_url(given: str) -> tuple[str, str]:
    """The URL for our driver, and the schema of the tables. Raises ValueError, never containing the password."""
    address, question, options = given.strip().partition("?")
    scheme, _, server = address.partition("://")
    if scheme not in ("postgres", "postgresql") or not server:
        raise ValueError("must be LiteLLM's DATABASE_URL, as in postgresql://USER:PASSWORD@HOST:5432/litellm")
    said = parse_qsl(options, keep_blank_values=True)
    kept = urlencode([(name, value) for name, value in said if name not in OF_PRISMA])
    return parse_database_url(f"{address}{question if kept else ''}{kept}"), dict(said).get("schema") or "public"


async def read_litellm(url: str, schema: str, names: Sequence[str]) -> Mapping[str, Sequence[str]]:
    """Table -> its rows; older versions lack some tables. Raises StateError if the first table is missing, or any may
    not be read."""
    database = open_database(url, READING)
    try:
        async with database.connect() as connection:
            moment = await connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
            readable = await _readable(moment, schema, names)
            found = {name: await _rows(moment, schema, name) for name in names if name in readable}
    finally:
        await database.dispose()
    if names[0] not in found:
        raise StateError(f"that database has no table {names[0]} in its schema {schema!r}: is it LiteLLM's?")
    return found


async def _readable(connection: AsyncConnection, schema: str, names: Sequence[str]) -> frozenset[str]:
    """The tables that exist. Raises StateError if one may not be read: the limits in it would be lost."""
    query = text(
        "SELECT tablename, has_schema_privilege(schemaname, 'USAGE')"
        " AND has_table_privilege(format('%I.%I', schemaname, tablename), 'SELECT')"
        " FROM pg_catalog.pg_tables WHERE schemaname = :schema"
    )
    there = {name: may_read for name, may_read in await connection.execute(query, {"schema": schema}) if name in names}
    if closed := [name for name, may_read in there.items() if not may_read]:
        raise StateError(
            f"the user of that address may not read {', '.join(sorted(closed))} in the schema {schema!r} of LiteLLM's "
            "database: let their owner `GRANT USAGE ON SCHEMA` and `GRANT SELECT ON ALL TABLES IN SCHEMA` to that user"
        )
    return frozenset(there)


async def _rows(connection: AsyncConnection, schema: str, name: str) -> Sequence[str]:
    """Rows as PostgreSQL formats them, floats as their shortest exact decimals."""
    row = cast(func.to_jsonb(literal_column("t")), Text)
    return (await connection.execute(select(row).select_from(table(name, schema=schema).alias("t")))).scalars().all()
