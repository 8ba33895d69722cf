"""How large the dearest and slowest single request of each hour and day is, so that the dearest of a year are quick."""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None

NAMES = ("largest_pico_usd", "largest_total_us", "largest_first_token_us", "ranked")
TABLES = {"hourly": "hour", "daily": "day"}
PAID = ("input", "cached_input", "cache_write", "output", "other", "compute")
COST = " + ".join(f"coalesce(entries.{name}_pico_usd, 0)" for name in PAID)
REQUESTS = f"""
    SELECT entries.accepted_at_us / 3600000000 AS hour, entries.accepted_at_us / 86400000000 AS day,
        entries.dimension_id, {COST} + coalesce(corrections.amount, 0) AS pico_usd, entries.total_us,
        coalesce(entries.time_to_first_token_us, 0) AS first_token_us
    FROM entries LEFT JOIN (
        SELECT request_id, sum(amount_pico_usd) AS amount FROM adjustments WHERE request_id IS NOT NULL GROUP BY 1
    ) AS corrections ON corrections.request_id = entries.request_id
"""


def upgrade() -> None:
    for table, unit in TABLES.items():
        for name in NAMES:
            op.add_column(table, sa.Column(name, sa.BigInteger(), server_default="0", nullable=False))
        op.execute(
            f"UPDATE {table} SET ranked = requests + adjusted_requests, largest_pico_usd = found.pico_usd, "
            "largest_total_us = found.total_us, largest_first_token_us = found.first_token_us "
            f"FROM (SELECT {unit} AS at, dimension_id AS of_dimension, "
            "max(pico_usd) AS pico_usd, max(total_us) AS total_us, max(first_token_us) AS first_token_us "
            f"FROM ({REQUESTS}) AS requests GROUP BY 1, 2) AS found "
            f"WHERE {table}.{unit} = found.at AND {table}.dimension_id = found.of_dimension"
        )
        # What retention has forgotten is nowhere to be found. What an older replica adds from now on is not ranked.
        unranked = "ranked <> requests + adjusted_requests"
        op.execute(f"UPDATE {table} SET ranked = requests + adjusted_requests WHERE {unranked}")


def downgrade() -> None:
    # By hand: Alembic would copy a table of SQLite's as a whole to take a column out of it.
    for table in TABLES:
        for name in NAMES:
            op.execute(f"ALTER TABLE {table} DROP COLUMN {name}")
