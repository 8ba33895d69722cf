"""Alembic's entry: runs on the connection that gateway.storage.database hands over. Nothing happens without one."""

import re

from alembic import context

from gateway.storage.tables import metadata

PARTITION = re.compile(r"(entries|attempts)_\d{4}_\d{2}$")


def include_name(name: str | None, kind: str, parents: object) -> bool:
    """Excludes monthly partitions, which are created and dropped at run time and are not part of the schema."""
    return not (kind == "table" and name is not None and PARTITION.match(name))


connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=metadata,
    include_name=include_name,
    compare_type=True,
    render_as_batch=connection.dialect.name == "sqlite",
    transaction_per_migration=False,
)
with context.begin_transaction():
    context.run_migrations()
