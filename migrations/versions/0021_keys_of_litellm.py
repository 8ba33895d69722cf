"""Keys that were LiteLLM's, by the hash of the secret that each had there."""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"


def upgrade() -> None:
    op.create_table(
        "litellm_keys",
        sa.Column("hash", sa.LargeBinary(32), nullable=False),
        sa.Column("key_id", sa.Text(), nullable=False),
        sa.Column("at_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("hash", name=op.f("pk_litellm_keys")),
    )


def downgrade() -> None:
    # An older version refuses these keys; after the next upgrade they have to be imported again.
    op.drop_table("litellm_keys")
