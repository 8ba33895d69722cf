"""Requests and their costs: entries, sums by hour and day, and corrections.

Values that repeat from request to request (names, versions, flags) are stored once in `dimensions` and `circumstances`,
so that a request is a few integers. A NULL cost means that the price is unknown, which is never zero.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from gateway.storage.tables.columns import BOUND_COLUMNS, COST_COLUMNS, TOKEN_COLUMNS, TOOL_COLUMNS
from gateway.storage.tables.naming import metadata


def _counts(*names: str, server_default: str | None = None) -> list[Column[int]]:
    return [Column(name, BigInteger, nullable=False, server_default=server_default) for name in names]


# Values by which costs are summed. `digest` is the BLAKE2b-128 of the other columns: a plain unique key would not cover
# NULLs.
dimensions = Table(
    "dimensions",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("digest", LargeBinary(16), nullable=False, unique=True),
    Column("key_id", Text, nullable=False),
    Column("team", Text),
    Column("project", Text),
    Column("tags", Text, nullable=False),  # JSON array
    Column("operation", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("backend", Text, nullable=False),
    Column("provider", Text, nullable=False),
    Column("upstream_model", Text, nullable=False),
    Column("rule", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("is_simulated", Boolean, nullable=False),
)

# Other repeating values, needed to read an entry back, to replay it or to price it again.
circumstances = Table(
    "circumstances",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("digest", LargeBinary(16), nullable=False, unique=True),
    Column("requested_model", Text, nullable=False),
    Column("is_stream", Boolean, nullable=False),
    Column("rules_version", Text, nullable=False),
    Column("prices_version", Text, nullable=False),
    Column("classifier_version", Text, nullable=False),
    Column("candidates", Text, nullable=False),  # JSON array
    Column("intended", Text),  # JSON: model, backend, provider, upstream model, is_simulated, if others answered
    Column("service_tier", Text),
    Column("finish_reason", Text),
    Column("http_status", Integer, nullable=False),
    Column("error", Text),
    Column("is_usage_estimated", Boolean, nullable=False),
    Column("is_exact", Boolean, nullable=False),  # both cost bounds equal the cost and are not stored
    Column("allowed_models", Text),  # JSON array: the key's own list; NULL: every model
    Column("predicted_models", LargeBinary),  # whose predictions `entries.detail` has: see classifier/predictions.py
)

# One row per accepted request. On PostgreSQL this table and `attempts` are partitioned by month.
entries = Table(
    "entries",
    metadata,
    Column("request_id", LargeBinary(16), primary_key=True),
    Column("accepted_at_us", BigInteger, primary_key=True, autoincrement=False),
    Column("dimension_id", Integer, nullable=False),
    Column("circumstance_id", Integer, nullable=False),
    *_counts(*TOKEN_COLUMNS),
    *(Column(name, BigInteger) for name in (*COST_COLUMNS, *BOUND_COLUMNS)),
    Column("gpu_us", BigInteger, nullable=False),
    Column("queue_us", BigInteger),
    Column("time_to_first_token_us", BigInteger),
    Column("total_us", BigInteger, nullable=False),
    Column("prefill_tokens_per_second", Double),
    Column("decode_tokens_per_second", Double),
    Column("detail", LargeBinary, nullable=False),  # facts and decision, for replay: see rows/entry_detail.py
    *(Column(name, Integer, nullable=False, server_default="0") for name in TOOL_COLUMNS),
    Column("batch_id", Text),  # NULL: not part of a batch
    Column("end_user", Text),  # NULL: not recorded, not named, or forgotten
    Index("ix_entries_accepted_at_us", "accepted_at_us"),
    Index(
        "ix_entries_batch_id",
        "batch_id",
        "accepted_at_us",
        postgresql_where=text("batch_id IS NOT NULL"),
        sqlite_where=text("batch_id IS NOT NULL"),
    ),
    Index(
        "ix_entries_end_user",
        "end_user",
        "accepted_at_us",
        postgresql_where=text("end_user IS NOT NULL"),
        sqlite_where=text("end_user IS NOT NULL"),
    ),
    postgresql_partition_by="RANGE (accepted_at_us)",
    sqlite_with_rowid=False,
)

# Only for requests with several attempts or a failed one; otherwise the single attempt is in `entries.detail`.
attempts = Table(
    "attempts",
    metadata,
    Column("request_id", LargeBinary(16), primary_key=True),
    Column("accepted_at_us", BigInteger, primary_key=True, autoincrement=False),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("model", Text, nullable=False),
    Column("backend", Text, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("started_after_us", BigInteger, nullable=False),
    Column("lasted_us", BigInteger, nullable=False),
    Column("cost_pico_usd", BigInteger),
    Column("http_status", Integer),
    Column("provider", Text),
    Column("upstream_model", Text),
    Column("is_simulated", Boolean),
    Column("lower_pico_usd", BigInteger),
    Column("upper_pico_usd", BigInteger),
    postgresql_partition_by="RANGE (accepted_at_us)",
    sqlite_with_rowid=False,
)


def _rollup(name: str, unit: str) -> Table:
    """Sums by time of acceptance and dimension.

    Costs exclude `unpriced_requests`, of which `priced_later_requests` got a price by a correction. Lower bounds are
    complete; upper bounds exclude `unbounded_requests`. The two sketches are histograms (sums/sketch.py). The `largest`
    columns are upper bounds on the figures of single requests, corrections included, for `ranked` requests and
    corrections: they are valid if these are all.
    """
    return Table(
        name,
        metadata,
        Column(unit, Integer, primary_key=True, autoincrement=False),
        Column("dimension_id", Integer, primary_key=True, autoincrement=False),
        *_counts("requests", "unpriced_requests", "estimated_requests", "unbounded_requests"),
        *_counts(*TOKEN_COLUMNS, *COST_COLUMNS, *BOUND_COLUMNS),
        *_counts("gpu_us", "total_us", "adjusted_requests", "adjustment_pico_usd"),
        Column("time_to_first_token_sketch", LargeBinary, nullable=False),
        Column("decode_sketch", LargeBinary, nullable=False),
        *_counts(*TOOL_COLUMNS, "priced_later_requests", server_default="0"),
        *_counts("largest_pico_usd", "largest_total_us", "largest_first_token_us", "ranked", server_default="0"),
        sqlite_with_rowid=False,
    )


# By UTC hour and UTC day since the epoch. Days are the sums of their hours, to make long periods fast.
hourly = _rollup("hourly", "hour")
daily = _rollup("daily", "day")

# What budgets count of each end user of a key, corrections included, by UTC day since the epoch. Deleted soon after the
# day's month has ended: reports read the requests.
end_user_days = Table(
    "end_user_days",
    metadata,
    Column("key_id", Text, primary_key=True),
    Column("end_user", Text, primary_key=True),
    Column("day", Integer, primary_key=True, autoincrement=False),
    Column("counted_pico_usd", BigInteger, nullable=False),
    Index("ix_end_user_days_day", "day"),
    Index("ix_end_user_days_end_user", "end_user"),
    sqlite_with_rowid=False,
)

# Corrections of booked costs: rows are only ever added. Without a request, a row corrects a whole dimension.
adjustments = Table(
    "adjustments",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("at_us", BigInteger, nullable=False),
    Column("hour", Integer, nullable=False),
    Column("dimension_id", Integer, nullable=False),
    Column("request_id", LargeBinary(16)),
    Column("kind", Text, nullable=False),  # reprice, refund, reconciliation
    Column("reference", Text, nullable=False),  # prices version, invoice number, ...: each is booked only once
    Column("amount_pico_usd", BigInteger, nullable=False),
    Column("reason", Text, nullable=False),
    Column("author", Text, nullable=False),
    UniqueConstraint("request_id", "kind", "reference"),
    Index("ix_adjustments_hour", "hour"),
)
