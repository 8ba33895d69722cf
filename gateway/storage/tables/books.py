"""What was asked and what it cost: entries, their sums by hour and day, corrections of both.

What repeats from request to request (names, versions, flags) stands once in `dimensions` and `circumstances`, so that a
request is a few integers. NULL cost: the price is not known, which is never zero.
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

from gateway.storage.tables.naming import metadata

# What costs are summed by. `digest` is the BLAKE2b-128 of the other columns: NULLs would escape a plain unique key.
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

# What else repeats, and is needed to read one entry back, to replay it or to price it again.
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
    Column("intended", Text),  # JSON: model, backend, provider, upstream model, is_simulated, where another answered
    Column("service_tier", Text),
    Column("finish_reason", Text),
    Column("http_status", Integer, nullable=False),
    Column("error", Text),
    Column("is_usage_estimated", Boolean, nullable=False),
    Column("is_exact", Boolean, nullable=False),  # both cost bounds are the cost itself and not stored
    Column("allowed_models", Text),  # JSON array: the key's own list; NULL: every model
)

# One row per accepted request. On PostgreSQL partitioned by month, one partition of each of these two tables.
entries = Table(
    "entries",
    metadata,
    Column("request_id", LargeBinary(16), primary_key=True),
    Column("accepted_at_us", BigInteger, primary_key=True, autoincrement=False),
    Column("dimension_id", Integer, nullable=False),
    Column("circumstance_id", Integer, nullable=False),
    Column("input_tokens", BigInteger, nullable=False),
    Column("cached_input_tokens", BigInteger, nullable=False),
    Column("cache_write_5m_tokens", BigInteger, nullable=False),
    Column("cache_write_1h_tokens", BigInteger, nullable=False),
    Column("output_tokens", BigInteger, nullable=False),
    Column("reasoning_tokens", BigInteger, nullable=False),
    Column("input_pico_usd", BigInteger),
    Column("cached_input_pico_usd", BigInteger),
    Column("cache_write_pico_usd", BigInteger),
    Column("output_pico_usd", BigInteger),
    Column("other_pico_usd", BigInteger),
    Column("compute_pico_usd", BigInteger),
    Column("list_pico_usd", BigInteger),
    Column("lower_pico_usd", BigInteger),
    Column("upper_pico_usd", BigInteger),
    Column("gpu_us", BigInteger, nullable=False),
    Column("queue_us", BigInteger),
    Column("time_to_first_token_us", BigInteger),
    Column("total_us", BigInteger, nullable=False),
    Column("prefill_tokens_per_second", Double),
    Column("decode_tokens_per_second", Double),
    Column("detail", LargeBinary, nullable=False),  # facts and decision, for replay: see rows/entry_detail.py
    Column("web_searches", Integer, nullable=False, server_default="0"),
    Column("file_searches", Integer, nullable=False, server_default="0"),
    Column("other_tool_calls", Integer, nullable=False, server_default="0"),
    Column("batch_id", Text),  # NULL: of no batch
    Index("ix_entries_accepted_at_us", "accepted_at_us"),
    Index(
        "ix_entries_batch_id",
        "batch_id",
        "accepted_at_us",
        postgresql_where=text("batch_id IS NOT NULL"),
        sqlite_where=text("batch_id IS NOT NULL"),
    ),
    postgresql_partition_by="RANGE (accepted_at_us)",
    sqlite_with_rowid=False,
)

# Only of requests that needed more than one attempt, or whose one failed; an ordinary one's is in `entries.detail`.
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

    Costs leave out `unpriced_requests`; lower bounds are complete, upper bounds leave out `unbounded_requests`. Of the
    unpriced ones `priced_later_requests` got a price by a correction. The two sketches are histograms (sums/sketch.py).
    Of none of the row's requests is a figure above the `largest` one, corrections included, as long as they take all of
    them into account: `ranked` is how many requests and corrections do.
    """
    return Table(
        name,
        metadata,
        Column(unit, Integer, primary_key=True, autoincrement=False),
        Column("dimension_id", Integer, primary_key=True, autoincrement=False),
        Column("requests", BigInteger, nullable=False),
        Column("unpriced_requests", BigInteger, nullable=False),
        Column("estimated_requests", BigInteger, nullable=False),
        Column("unbounded_requests", BigInteger, nullable=False),
        Column("input_tokens", BigInteger, nullable=False),
        Column("cached_input_tokens", BigInteger, nullable=False),
        Column("cache_write_5m_tokens", BigInteger, nullable=False),
        Column("cache_write_1h_tokens", BigInteger, nullable=False),
        Column("output_tokens", BigInteger, nullable=False),
        Column("reasoning_tokens", BigInteger, nullable=False),
        Column("input_pico_usd", BigInteger, nullable=False),
        Column("cached_input_pico_usd", BigInteger, nullable=False),
        Column("cache_write_pico_usd", BigInteger, nullable=False),
        Column("output_pico_usd", BigInteger, nullable=False),
        Column("other_pico_usd", BigInteger, nullable=False),
        Column("compute_pico_usd", BigInteger, nullable=False),
        Column("list_pico_usd", BigInteger, nullable=False),
        Column("lower_pico_usd", BigInteger, nullable=False),
        Column("upper_pico_usd", BigInteger, nullable=False),
        Column("gpu_us", BigInteger, nullable=False),
        Column("total_us", BigInteger, nullable=False),
        Column("adjusted_requests", BigInteger, nullable=False),
        Column("adjustment_pico_usd", BigInteger, nullable=False),
        Column("time_to_first_token_sketch", LargeBinary, nullable=False),
        Column("decode_sketch", LargeBinary, nullable=False),
        Column("web_searches", BigInteger, nullable=False, server_default="0"),
        Column("file_searches", BigInteger, nullable=False, server_default="0"),
        Column("other_tool_calls", BigInteger, nullable=False, server_default="0"),
        Column("priced_later_requests", BigInteger, nullable=False, server_default="0"),
        Column("largest_pico_usd", BigInteger, nullable=False, server_default="0"),
        Column("largest_total_us", BigInteger, nullable=False, server_default="0"),
        Column("largest_first_token_us", BigInteger, nullable=False, server_default="0"),
        Column("ranked", BigInteger, nullable=False, server_default="0"),
        sqlite_with_rowid=False,
    )


# UTC hours and UTC days since the epoch. Days only make long periods quick: they are the sums of their hours.
hourly = _rollup("hourly", "hour")
daily = _rollup("daily", "day")

# Corrections of what was booked: rows are only ever added. A null request is a correction of a whole dimension.
adjustments = Table(
    "adjustments",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("at_us", BigInteger, nullable=False),
    Column("hour", Integer, nullable=False),
    Column("dimension_id", Integer, nullable=False),
    Column("request_id", LargeBinary(16)),
    Column("kind", Text, nullable=False),  # reprice, refund, reconciliation
    Column("reference", Text, nullable=False),  # prices version, invoice number, ...: the same one books once
    Column("amount_pico_usd", BigInteger, nullable=False),
    Column("reason", Text, nullable=False),
    Column("author", Text, nullable=False),
    UniqueConstraint("request_id", "kind", "reference"),
    Index("ix_adjustments_hour", "hour"),
)
