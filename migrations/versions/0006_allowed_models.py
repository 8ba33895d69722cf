"""Which models a request's key was allowed, so that its decision can be replayed."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.add_column("circumstances", sa.Column("allowed_models", sa.Text(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("circumstances") as batch:
        batch.drop_column("allowed_models")
