"""What budgets count of each end user of a key, by day."""

import time

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"

DAY_US = 86_400_000_000
DAYS = 33
MOST = 9 * 10**18
PAID = ("input", "cached_input", "cache_write", "output", "other", "compute")


def upgrade() -> None:
    op.create_table(
        "end_user_days",
        sa.Column("key_id", sa.Text(), nullable=False),
        sa.Column("end_user", sa.Text(), nullable=False),
        sa.Column("day", sa.Integer(), nullable=False),
        sa.Column("counted_pico_usd", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("key_id", "end_user", "day"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_end_user_days_day", "end_user_days", ["day"])
    op.create_index("ix_end_user_days_end_user", "end_user_days", ["end_user"])
    # A month's days are kept, counted and verified until two days after its end: older requests are in none.
    since_us = (time.time_ns() // 1000 // DAY_US - DAYS) * DAY_US
    by_index = "INDEXED BY ix_entries_end_user" if op.get_bind().dialect.name == "sqlite" else ""
    paid = " + ".join(f"COALESCE(entries.{name}_pico_usd, 0)" for name in PAID)
    corrections = "SELECT SUM(amount_pico_usd) FROM adjustments WHERE adjustments.request_id = entries.request_id"
    op.execute(
        f"""
        INSERT INTO end_user_days (key_id, end_user, day, counted_pico_usd)
        SELECT key_id, end_user, day, CASE WHEN SUM(counted) > {MOST} THEN {MOST} ELSE SUM(counted) END FROM (
            SELECT key_id, end_user, accepted_at_us / {DAY_US} AS day,
                CASE WHEN status <> 'orphaned' THEN {paid} + COALESCE(({corrections}), 0)
                    WHEN is_exact THEN {paid} ELSE COALESCE(upper_pico_usd, 0) END AS counted
            FROM entries {by_index}
            JOIN dimensions ON dimensions.id = dimension_id
            JOIN circumstances ON circumstances.id = circumstance_id
            WHERE end_user IS NOT NULL AND accepted_at_us >= {since_us}
        ) AS requests
        GROUP BY key_id, end_user, day
        HAVING SUM(counted) <> 0
        """
    )


def downgrade() -> None:
    op.drop_table("end_user_days")
