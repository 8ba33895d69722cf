"""Which batch a request is a line of, so that what one batch cost can be found. Older requests say nothing of it."""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

INDEX, OF_ONE = "ix_entries_batch_id", sa.text("batch_id IS NOT NULL")


def upgrade() -> None:
    op.add_column("entries", sa.Column("batch_id", sa.Text(), nullable=True))
    columns = ["batch_id", "accepted_at_us"]
    op.create_index(INDEX, "entries", columns, postgresql_where=OF_ONE, sqlite_where=OF_ONE)


def downgrade() -> None:
    op.drop_index(INDEX, "entries")
    # By hand: Alembic would copy a table of SQLite's as a whole to take a column out of it.
    op.execute("ALTER TABLE entries DROP COLUMN batch_id")
