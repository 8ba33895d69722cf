"""How often an answer used its provider's own tools, which are billed besides tokens."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"

COLUMNS = ("web_searches", "file_searches", "other_tool_calls")
TABLES = {"entries": sa.Integer, "hourly": sa.BigInteger, "daily": sa.BigInteger}


def upgrade() -> None:
    for table, kind in TABLES.items():
        for name in COLUMNS:
            op.add_column(table, sa.Column(name, kind(), server_default="0", nullable=False))


def downgrade() -> None:
    # Plain SQL: in SQLite, Alembic would copy the whole table to drop a column.
    for table in TABLES:
        for name in COLUMNS:
            op.execute(f"ALTER TABLE {table} DROP COLUMN {name}")
