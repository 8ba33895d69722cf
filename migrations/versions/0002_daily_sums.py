"""Sums by day beside those by hour, so that a month is quick to add up."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

HOURS = 24
SKETCHES = ("time_to_first_token_sketch", "decode_sketch")


def upgrade() -> None:
    op.create_table(
        "daily",
        sa.Column("day", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("dimension_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("requests", sa.BigInteger(), nullable=False),
        sa.Column("unpriced_requests", sa.BigInteger(), nullable=False),
        sa.Column("estimated_requests", sa.BigInteger(), nullable=False),
        sa.Column("unbounded_requests", sa.BigInteger(), nullable=False),
        sa.Column("input_tokens", sa.BigInteger(), nullable=False),
        sa.Column("cached_input_tokens", sa.BigInteger(), nullable=False),
        sa.Column("cache_write_5m_tokens", sa.BigInteger(), nullable=False),
        sa.Column("cache_write_1h_tokens", sa.BigInteger(), nullable=False),
        sa.Column("output_tokens", sa.BigInteger(), nullable=False),
        sa.Column("reasoning_tokens", sa.BigInteger(), nullable=False),
        sa.Column("input_pico_usd", sa.BigInteger(), nullable=False),
        sa.Column("cached_input_pico_usd", sa.BigInteger(), nullable=False),
        sa.Column("cache_write_pico_usd", sa.BigInteger(), nullable=False),
        sa.Column("output_pico_usd", sa.BigInteger(), nullable=False),
        sa.Column("other_pico_usd", sa.BigInteger(), nullable=False),
        sa.Column("compute_pico_usd", sa.BigInteger(), nullable=False),
        sa.Column("list_pico_usd", sa.BigInteger(), nullable=False),
        sa.Column("lower_pico_usd", sa.BigInteger(), nullable=False),
        sa.Column("upper_pico_usd", sa.BigInteger(), nullable=False),
        sa.Column("gpu_us", sa.BigInteger(), nullable=False),
        sa.Column("total_us", sa.BigInteger(), nullable=False),
        sa.Column("adjusted_requests", sa.BigInteger(), nullable=False),
        sa.Column("adjustment_pico_usd", sa.BigInteger(), nullable=False),
        sa.Column("time_to_first_token_sketch", sa.LargeBinary(), nullable=False),
        sa.Column("decode_sketch", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("day", "dimension_id", name=op.f("pk_daily")),
        sqlite_with_rowid=False,
    )
    fill(op.get_bind())


def downgrade() -> None:
    op.drop_table("daily")


def fill(connection: sa.Connection) -> None:
    """Add up the hours there are. Sketches are joined: that is how they are merged."""
    hourly = sa.Table("hourly", sa.MetaData(), autoload_with=connection)
    daily = sa.Table("daily", sa.MetaData(), autoload_with=connection)
    days: dict[tuple[int, int], dict[str, object]] = {}
    for row in connection.execute(sa.select(hourly)).mappings():
        key = (row["hour"] // HOURS, row["dimension_id"])
        sums = days.setdefault(key, {"day": key[0], "dimension_id": key[1]})
        for name, value in row.items():
            if name in SKETCHES:
                sums[name] = bytes(sums.get(name, b"")) + bytes(value)  # pyright: ignore[reportArgumentType]
            elif name not in ("hour", "dimension_id"):
                sums[name] = int(sums.get(name, 0)) + int(value)  # pyright: ignore[reportArgumentType]
    if days:
        connection.execute(daily.insert(), list(days.values()))
