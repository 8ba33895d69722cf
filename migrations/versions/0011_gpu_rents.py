"""The dated hourly rents of GPUs."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    op.create_table(
        "gpu_rents",
        sa.Column("backend", sa.Text(), nullable=False),
        sa.Column("from_hour", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("hour_pico_usd", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("backend", "from_hour", name=op.f("pk_gpu_rents")),
    )


def downgrade() -> None:
    op.drop_table("gpu_rents")
