"""Which budget thresholds were already notified, so that each is notified once."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    op.create_table(
        "budget_notices",
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("window_id", sa.Text(), nullable=False),
        sa.Column("amount_pico_usd", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("share_per_mille", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("claimed_at_us", sa.BigInteger(), nullable=False),
        sa.Column("told_at_us", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint(
            "scope", "name", "window_id", "amount_pico_usd", "share_per_mille", name=op.f("pk_budget_notices")
        ),
    )


def downgrade() -> None:
    op.drop_table("budget_notices")
