"""Which models a request's key was allowed, so that its decision can be replayed."""

import hashlib

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.add_column("circumstances", sa.Column("allowed_models", sa.Text(), nullable=True))


def downgrade() -> None:
    # These rows will lack what their digest says: who upgrades again must not find them for new entries.
    connection = op.get_bind()
    for number in connection.scalars(sa.text("SELECT id FROM circumstances WHERE allowed_models IS NOT NULL")).all():
        digest = hashlib.blake2b(b"without its allowed models: %d" % number, digest_size=16).digest()
        connection.execute(
            sa.text("UPDATE circumstances SET digest = :digest WHERE id = :id"), {"digest": digest, "id": number}
        )
    with op.batch_alter_table("circumstances") as batch:
        batch.drop_column("allowed_models")
