"""Which customer of an app a request was made for, if end users are recorded. Unknown for older requests."""

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"

INDEX, RECORDED = "ix_entries_end_user", sa.text("end_user IS NOT NULL")


def upgrade() -> None:
    op.add_column("entries", sa.Column("end_user", sa.Text(), nullable=True))
    if op.get_bind().dialect.name == "postgresql":
        # Existing months get theirs later, without blocking reads or writes: gateway/storage/partition_indexes.py.
        op.execute(f"CREATE INDEX {INDEX} ON ONLY entries (end_user, accepted_at_us) WHERE {RECORDED}")
    else:
        op.create_index(INDEX, "entries", ["end_user", "accepted_at_us"], sqlite_where=RECORDED)


def downgrade() -> None:
    op.drop_index(INDEX, "entries")
    # Plain SQL: in SQLite, Alembic would copy the whole table to drop a column.
    op.execute("ALTER TABLE entries DROP COLUMN end_user")
