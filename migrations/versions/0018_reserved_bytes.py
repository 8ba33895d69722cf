"""What is being uploaded takes room from its first byte on."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("files", sa.Column("reserved_bytes", sa.BigInteger(), nullable=True))


def downgrade() -> None:
    # By hand: Alembic would copy a table of SQLite's as a whole to take a column out of it.
    op.execute("ALTER TABLE files DROP COLUMN reserved_bytes")
