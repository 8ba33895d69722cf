"""How many of the requests that were booked without a price have one by now."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"

NAME = "priced_later_requests"
TABLES = {"hourly": "hour", "daily": "day"}
# Found by the reason that every earlier version wrote: retention may have deleted the request itself.
FIRST_PRICES = (
    "SELECT hour, hour / 24 AS day, dimension_id, request_id FROM adjustments "
    "WHERE kind = 'reprice' AND reason = 'the price was not known when it was booked'"
)


def upgrade() -> None:
    for table, unit in TABLES.items():
        op.add_column(table, sa.Column(NAME, sa.BigInteger(), server_default="0", nullable=False))
        op.execute(
            f"UPDATE {table} SET {NAME} = found.requests FROM (SELECT {unit} AS at, dimension_id AS of_dimension, "
            f"count(DISTINCT request_id) AS requests FROM ({FIRST_PRICES}) AS first_prices GROUP BY 1, 2) AS found "
            f"WHERE {table}.{unit} = found.at AND {table}.dimension_id = found.of_dimension"
        )


def downgrade() -> None:
    # Plain SQL: in SQLite, Alembic would copy the whole table to drop a column.
    for table in TABLES:
        op.execute(f"ALTER TABLE {table} DROP COLUMN {NAME}")
