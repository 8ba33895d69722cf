"""A monthly budget may stop the spending instead of warning."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"

VIEW = "CREATE VIEW finance_budgets AS SELECT DISTINCT scope, name, month_pico_usd / 1e12 AS month_usd{} FROM budgets"


def upgrade() -> None:
    op.execute("DROP VIEW finance_budgets")
    op.add_column("budgets", sa.Column("stops", sa.Boolean(), server_default=sa.false(), nullable=False))
    op.execute(VIEW.format(", stops"))


def downgrade() -> None:
    op.execute("DROP VIEW finance_budgets")
    with op.batch_alter_table("budgets") as batch:
        batch.drop_column("stops")
    op.execute(VIEW.format(""))
