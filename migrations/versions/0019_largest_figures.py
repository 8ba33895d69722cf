"""The most expensive and slowest single request of each hour and day, so that finding a year's largest is quick."""

import json
import time

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"

NAMES = ("largest_pico_usd", "largest_total_us", "largest_first_token_us", "ranked")
TABLES = ("hourly", "daily")
# Ranked hour by hour without blocking readers or writers: millions of rows take minutes. See
# gateway/storage/sums/ranking.py. What an older replica adds from now on is not ranked.
LEFT = "hours_to_rank"


def upgrade() -> None:
    for table in TABLES:
        for name in NAMES:
            op.add_column(table, sa.Column(name, sa.BigInteger(), server_default="0", nullable=False))
    connection = op.get_bind()
    first, last = connection.execute(sa.text("SELECT min(hour), max(hour) FROM hourly")).one()
    if first is not None:
        left = sa.text("INSERT INTO state (name, value, updated_at_us) VALUES (:name, :value, :at_us)")
        values = {"name": LEFT, "value": json.dumps([first, last]), "at_us": time.time_ns() // 1000}
        connection.execute(left, values)


def downgrade() -> None:
    # Plain SQL: in SQLite, Alembic would copy the whole table to drop a column.
    op.execute(f"DELETE FROM state WHERE name = '{LEFT}'")
    for table in TABLES:
        for name in NAMES:
            op.execute(f"ALTER TABLE {table} DROP COLUMN {name}")
