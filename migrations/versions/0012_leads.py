"""Keys of the role `lead`, which read what their own team spends."""

from alembic import op

revision = "0012"
down_revision = "0011"

BEFORE = ("app", "viewer", "finance", "editor", "owner")
SINCE = ("app", "lead", *BEFORE[1:])


def upgrade() -> None:
    _allow(SINCE)


def downgrade() -> None:
    # An older version would let leads call models, so their keys are revoked.
    revoked = "role = 'viewer', revoked_at_us = coalesce(revoked_at_us, created_at_us)"
    op.execute(f"UPDATE api_keys SET {revoked} WHERE role = 'lead'")
    _allow(BEFORE)


def _allow(roles: tuple[str, ...]) -> None:
    with op.batch_alter_table("api_keys") as table:  # SQLite's table is rebuilt
        table.drop_constraint(op.f("ck_api_keys_role"), type_="check")
        table.create_check_constraint(op.f("ck_api_keys_role"), f"role in {roles}")
