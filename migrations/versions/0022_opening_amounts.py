"""What had been spent elsewhere of an imported budget, in the window of the import."""

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"


def upgrade() -> None:
    op.create_table(
        "opening_amounts",
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("window_id", sa.Text(), nullable=False),
        sa.Column("amount_pico_usd", sa.BigInteger(), nullable=False),
        sa.Column("at_us", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("scope in ('key', 'team', 'project')", name=op.f("ck_opening_amounts_scope")),
        sa.PrimaryKeyConstraint("scope", "name", "window_id", name=op.f("pk_opening_amounts")),
    )


def downgrade() -> None:
    # An older version counts from zero; after the next upgrade they have to be imported again.
    op.drop_table("opening_amounts")
