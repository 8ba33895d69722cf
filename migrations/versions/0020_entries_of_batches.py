"""Which batch a request is a line of, so that a batch's cost can be found. Unknown for older requests."""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"

INDEX, OF_ONE = "ix_entries_batch_id", sa.text("batch_id IS NOT NULL")


def upgrade() -> None:
    op.add_column("entries", sa.Column("batch_id", sa.Text(), nullable=True))
    if op.get_bind().dialect.name == "postgresql":
        # Existing months get theirs later, without blocking reads or writes: gateway/storage/partition_indexes.py.
        op.execute(f"CREATE INDEX {INDEX} ON ONLY entries (batch_id, accepted_at_us) WHERE {OF_ONE}")
    else:
        op.create_index(INDEX, "entries", ["batch_id", "accepted_at_us"], sqlite_where=OF_ONE)


def downgrade() -> None:
    op.drop_index(INDEX, "entries")
    # Plain SQL: in SQLite, Alembic would copy the whole table to drop a column.
    op.execute("ALTER TABLE entries DROP COLUMN batch_id")
