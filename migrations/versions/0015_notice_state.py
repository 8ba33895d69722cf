"""When budgets were last looked at for notices, and how sending them went."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    op.create_table(
        "notice_state",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("looked_at_us", sa.BigInteger(), nullable=False),
        sa.Column("forecast_at_us", sa.BigInteger(), nullable=True),
        sa.Column("sent_at_us", sa.BigInteger(), nullable=True),
        sa.Column("failing_since_us", sa.BigInteger(), nullable=True),
        sa.Column("failed_at_us", sa.BigInteger(), nullable=True),
        sa.Column("problem", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_notice_state")),
        sa.CheckConstraint("id = 1", name=op.f("ck_notice_state_single")),
    )


def downgrade() -> None:
    op.drop_table("notice_state")
