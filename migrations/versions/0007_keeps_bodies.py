"""Keys opt in to having their prompts and answers stored."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.add_column("api_keys", sa.Column("keeps_bodies", sa.Boolean(), server_default=sa.false(), nullable=False))


def downgrade() -> None:
    with op.batch_alter_table("api_keys") as batch:
        batch.drop_column("keeps_bodies")
