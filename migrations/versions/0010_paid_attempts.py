"""Which provider bills an attempt that did not answer, so that sums by provider agree with invoices."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"

COLUMNS = {
    "provider": sa.Text,
    "upstream_model": sa.Text,
    "is_simulated": sa.Boolean,
    "lower_pico_usd": sa.BigInteger,
    "upper_pico_usd": sa.BigInteger,
}


def upgrade() -> None:
    for name, kind in COLUMNS.items():
        op.add_column("attempts", sa.Column(name, kind(), nullable=True))


def downgrade() -> None:
    # Plain SQL: in SQLite, Alembic would copy the whole table to drop a column.
    for name in COLUMNS:
        op.execute(f"ALTER TABLE attempts DROP COLUMN {name}")
