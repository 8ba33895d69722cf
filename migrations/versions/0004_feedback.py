"""What kind of feedback was given, and which requests were shadow calls."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    with op.batch_alter_table("feedback") as batch:
        batch.add_column(sa.Column("kind", sa.Text(), nullable=False, server_default="score"))
    with op.batch_alter_table("feedback") as batch:
        batch.alter_column("kind", server_default=None)
    op.create_table(
        "shadow_calls",
        sa.Column("request_id", sa.LargeBinary(16), nullable=False),
        sa.Column("of_request_id", sa.LargeBinary(16), nullable=False),
        sa.Column("at_us", sa.BigInteger(), nullable=False),
        sa.Column("propensity", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("request_id", name=op.f("pk_shadow_calls")),
    )
    op.create_index("ix_shadow_calls_of_request_id", "shadow_calls", ["of_request_id"], unique=False)


def downgrade() -> None:
    op.drop_index("ix_shadow_calls_of_request_id", table_name="shadow_calls")
    op.drop_table("shadow_calls")
    with op.batch_alter_table("feedback") as batch:
        batch.drop_column("kind")
