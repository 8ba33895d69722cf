"""An upload takes up storage from its first byte on."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    op.add_column("files", sa.Column("reserved_bytes", sa.BigInteger(), nullable=True))


def downgrade() -> None:
    # Plain SQL: in SQLite, Alembic would copy the whole table to drop a column.
    op.execute("ALTER TABLE files DROP COLUMN reserved_bytes")
