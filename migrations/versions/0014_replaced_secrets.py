"""Secrets of keys that were replaced, each with the end of its overlap."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    op.create_table(
        "replaced_secrets",
        sa.Column("hash", sa.LargeBinary(32), nullable=False),
        sa.Column("key_id", sa.Text(), nullable=False),
        sa.Column("replaced_at_us", sa.BigInteger(), nullable=False),
        sa.Column("ends_at_us", sa.BigInteger(), nullable=False),
        sa.Column("withdrawn_at_us", sa.BigInteger(), nullable=True),
        sa.Column("last_used_at_us", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("hash", name=op.f("pk_replaced_secrets")),
    )
    op.create_index("ix_replaced_secrets_key_id", "replaced_secrets", ["key_id"])


def downgrade() -> None:
    # An older version accepts only each key's newest secret.
    op.drop_table("replaced_secrets")
