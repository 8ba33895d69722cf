"""Files of callers, and batches of requests that can wait."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    op.create_table(
        "files",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("purpose", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=True),
        sa.Column("created_at_us", sa.BigInteger(), nullable=False),
        sa.Column("expires_at_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_files")),
    )
    op.create_index("ix_files_tenant", "files", ["tenant", "id"])
    op.create_index("ix_files_expires_at_us", "files", ["expires_at_us"])
    op.create_table(
        "file_parts",
        sa.Column("file_id", sa.Text(), nullable=False),
        sa.Column("place", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("sealed", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("file_id", "place", name=op.f("pk_file_parts")),
    )
    op.create_table(
        "batches",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("key_id", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("created_at_us", sa.BigInteger(), nullable=False),
        sa.Column("deadline_us", sa.BigInteger(), nullable=False),
        sa.Column("keep_us", sa.BigInteger(), nullable=False),
        sa.Column("input_file_id", sa.Text(), nullable=False),
        sa.Column("output_file_id", sa.Text(), nullable=False),
        sa.Column("error_file_id", sa.Text(), nullable=False),
        sa.Column("asked", sa.Text(), nullable=False),
        sa.Column("progress", sa.Text(), nullable=False),
        sa.Column("problems", sa.Text(), nullable=False),
        sa.Column("times_us", sa.Text(), nullable=False),
        sa.Column("runner", sa.Text(), nullable=True),
        sa.Column("leased_until_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_batches")),
    )
    op.create_index("ix_batches_tenant", "batches", ["tenant", "id"])
    op.create_index("ix_batches_status", "batches", ["status"])


def downgrade() -> None:
    for table in ("batches", "file_parts", "files"):
        op.drop_table(table)
