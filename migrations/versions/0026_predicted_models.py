"""The models that a decision's predictions are for are stored once, not by name in every entry. NULL for older
entries, which have the names themselves."""

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"


def upgrade() -> None:
    op.add_column("circumstances", sa.Column("predicted_models", sa.LargeBinary(), nullable=True))


def downgrade() -> None:
    # Plain SQL: in SQLite, Alembic would copy the whole table to drop a column.
    op.execute("ALTER TABLE circumstances DROP COLUMN predicted_models")
