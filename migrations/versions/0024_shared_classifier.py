"""The classifier in force, for all replicas: every choice, and the files that were learned."""

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"


def upgrade() -> None:
    op.create_table(
        "classifier_choices",
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("history", sa.Text(), nullable=False),
        sa.Column("at_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_classifier_choices")),
    )
    op.create_table(
        "classifier_files",
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("path", name=op.f("pk_classifier_files")),
    )


def downgrade() -> None:
    # Each replica keeps in its home what was in force; an older version shares nothing.
    op.drop_table("classifier_files")
    op.drop_table("classifier_choices")
