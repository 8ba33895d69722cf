"""The models that a decision's predictions are for are stored once, not by name in every entry. NULL for older
entries, which have the names themselves."""

import hashlib

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"


def upgrade() -> None:
    op.add_column("circumstances", sa.Column("predicted_models", sa.LargeBinary(), nullable=True))


def downgrade() -> None:
    # These rows will lack what their digest says: who upgrades again must not find them for new entries.
    connection = op.get_bind()
    for number in connection.scalars(sa.text("SELECT id FROM circumstances WHERE predicted_models IS NOT NULL")).all():
        digest = hashlib.blake2b(b"without its models: %d" % number, digest_size=16).digest()
        connection.execute(
            sa.text("UPDATE circumstances SET digest = :digest WHERE id = :id"), {"digest": digest, "id": number}
        )
    # Plain SQL: in SQLite, Alembic would copy the whole table to drop a column.
    op.execute("ALTER TABLE circumstances DROP COLUMN predicted_models")
