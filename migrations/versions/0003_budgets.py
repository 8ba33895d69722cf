"""Monthly budgets of teams, projects and everything."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.create_table(
        "budgets",
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("month_pico_usd", sa.BigInteger(), nullable=False),
        sa.Column("set_by", sa.Text(), nullable=False),
        sa.Column("set_at_us", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("scope in ('all', 'team', 'project')", name=op.f("ck_budgets_scope")),
        sa.PrimaryKeyConstraint("scope", "name", name=op.f("pk_budgets")),
    )


def downgrade() -> None:
    op.drop_table("budgets")
