"""Every table of the database, once. Imports SQLAlchemy alone; migrations/ must add up to exactly this.

Money is integer pico-USD, times are microseconds since the Unix epoch (UTC), hours are whole hours since it. What
repeats from request to request (names, versions, flags) stands once in `dimensions` and `circumstances`, so that a
request is a few integers. NULL cost: the price is not known, which is never zero.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    false,
    text,
)

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(column_0_label)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)

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
    Column("detail", LargeBinary, nullable=False),  # facts and decision, for replay: see entry_rows.py
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
    unpriced ones `priced_later_requests` got a price by a correction. The two sketches are histograms: see sketch.py.
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

api_keys = Table(
    "api_keys",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("hash", LargeBinary(32), nullable=False, unique=True),
    Column("role", Text, nullable=False),
    Column("team", Text),
    Column("project", Text),
    Column("tags", Text, nullable=False),  # JSON array
    Column("allowed_models", Text),  # JSON array; NULL: all
    Column("limits", Text, nullable=False),  # JSON object: budgets, rates, tier quotas
    Column("created_at_us", BigInteger, nullable=False),
    Column("created_by", Text, nullable=False),
    Column("expires_at_us", BigInteger),
    Column("revoked_at_us", BigInteger),
    Column("keeps_bodies", Boolean, nullable=False, server_default=false()),  # prompts and answers are stored, sealed
    CheckConstraint("role in ('app', 'lead', 'viewer', 'finance', 'editor', 'owner')", name="role"),
)

# Secrets whose place another took: each works until its end, and never again once it is withdrawn. Of a key the newest
# few are remembered, so that who still uses one hears what happened.
replaced_secrets = Table(
    "replaced_secrets",
    metadata,
    Column("hash", LargeBinary(32), primary_key=True),
    Column("key_id", Text, nullable=False),
    Column("replaced_at_us", BigInteger, nullable=False),
    Column("ends_at_us", BigInteger, nullable=False),
    Column("withdrawn_at_us", BigInteger),
    Column("last_used_at_us", BigInteger),
    Index("ix_replaced_secrets_key_id", "key_id"),
)

# Keys that were LiteLLM's, by the hash of the secret that each had there: taken over once, whatever becomes of it here.
litellm_keys = Table(
    "litellm_keys",
    metadata,
    Column("hash", LargeBinary(32), primary_key=True),
    Column("key_id", Text, nullable=False),
    Column("at_us", BigInteger, nullable=False),
)

# What a team, a project or everything may cost in a calendar month (UTC).
budgets = Table(
    "budgets",
    metadata,
    Column("scope", Text, primary_key=True),
    Column("name", Text, primary_key=True),  # empty for everything
    Column("month_pico_usd", BigInteger, nullable=False),
    Column("set_by", Text, nullable=False),
    Column("set_at_us", BigInteger, nullable=False),
    Column("stops", Boolean, nullable=False, server_default=false()),  # nothing above it is spent; else it warns
    CheckConstraint("scope in ('all', 'team', 'project')", name="scope"),
)

# What a budget had spent elsewhere in the window in which it came here: it counts until that window ends, and stands in
# no sum. The newest figure that was heard.
opening_amounts = Table(
    "opening_amounts",
    metadata,
    Column("scope", Text, primary_key=True),
    Column("name", Text, primary_key=True),  # of a key its id
    Column("window_id", Text, primary_key=True),  # month:2026-11-01; see gateway/limits/values.py
    Column("amount_pico_usd", BigInteger, nullable=False),
    Column("at_us", BigInteger, nullable=False),
    CheckConstraint("scope in ('key', 'team', 'project')", name="scope"),
)

# Which shares of budgets an operator was told of: the row of one is the claim to tell it. An amount that is changed is
# another budget here, and so is each window.
budget_notices = Table(
    "budget_notices",
    metadata,
    Column("scope", Text, primary_key=True),
    Column("name", Text, primary_key=True),  # of a key its id; empty for everything
    Column("window_id", Text, primary_key=True),  # month:2026-11-01; see gateway/limits/values.py
    Column("amount_pico_usd", BigInteger, primary_key=True, autoincrement=False),
    Column("share_per_mille", Integer, primary_key=True, autoincrement=False),  # 0: its forecast
    Column("claimed_at_us", BigInteger, nullable=False),
    Column("told_at_us", BigInteger),  # NULL: somebody is telling it
)

# One row, ever: who moves `looked_at_us` on looks at all budgets for everybody. `forecast_at_us` is when forecasts were
# last looked at; `failing_since_us` is NULL where no notice waits to be sent.
notice_state = Table(
    "notice_state",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("looked_at_us", BigInteger, nullable=False),
    Column("forecast_at_us", BigInteger),
    Column("sent_at_us", BigInteger),
    Column("failing_since_us", BigInteger),
    Column("failed_at_us", BigInteger),
    Column("problem", Text, nullable=False),
    CheckConstraint("id = 1", name="single"),
)

# What the GPUs of a backend cost by the hour, from a UTC hour since the epoch until its next row; NULL: not paid for.
gpu_rents = Table(
    "gpu_rents",
    metadata,
    Column("backend", Text, primary_key=True),
    Column("from_hour", Integer, primary_key=True, autoincrement=False),
    Column("provider", Text, nullable=False),
    Column("hour_pico_usd", BigInteger),
)

rule_versions = Table(
    "rule_versions",
    metadata,
    Column("version", Text, primary_key=True),
    Column("text", Text, nullable=False),
    Column("author", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("created_at_us", BigInteger, nullable=False),
)

# One row, ever: changing it is the compare-and-set.
active_rules = Table(
    "active_rules",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("version", Text, ForeignKey("rule_versions.version"), nullable=False),
    CheckConstraint("id = 1", name="single"),
)

activations = Table(
    "activations",
    metadata,
    Column("sequence", Integer, primary_key=True),
    Column("version", Text, ForeignKey("rule_versions.version"), nullable=False),
    Column("previous", Text),
    Column("author", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("at_us", BigInteger, nullable=False),
)

audit_log = Table(
    "audit_log",
    metadata,
    Column("sequence", Integer, primary_key=True, autoincrement=False),
    Column("at_us", BigInteger, nullable=False),
    Column("actor", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("detail", Text, nullable=False),
    Column("previous_digest", LargeBinary(32), nullable=False),
    Column("digest", LargeBinary(32), nullable=False),
)

feedback = Table(
    "feedback",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("request_id", LargeBinary(16), nullable=False),
    Column("key_id", Text, nullable=False),
    Column("at_us", BigInteger, nullable=False),
    Column("score", Double, nullable=False),
    Column("source", Text, nullable=False),  # caller, shadow, judge
    Column("comment", Text),
    Column("kind", Text, nullable=False),  # what the score is made from; see gateway.stores.FeedbackKind
    Index("ix_feedback_request_id", "request_id"),
)

# Requests that were asked again of another model, off the path. Both have an entry; the caller saw the first.
shadow_calls = Table(
    "shadow_calls",
    metadata,
    Column("request_id", LargeBinary(16), primary_key=True),
    Column("of_request_id", LargeBinary(16), nullable=False),
    Column("at_us", BigInteger, nullable=False),
    Column("propensity", Double, nullable=False),  # of being asked again at all, times of this model
    Index("ix_shadow_calls_of_request_id", "of_request_id"),
)

# Prompts and answers, only for keys that opted in, encrypted, with a retention of their own.
request_bodies = Table(
    "request_bodies",
    metadata,
    Column("request_id", LargeBinary(16), primary_key=True),
    Column("stored_at_us", BigInteger, nullable=False),
    Column("key_id", Text, nullable=False),
    Column("sealed", LargeBinary, nullable=False),
    Index("ix_request_bodies_stored_at_us", "stored_at_us"),
)

# Files of callers and of their batches. One without a size has not come whole yet.
files = Table(
    "files",
    metadata,
    Column("id", Text, primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("purpose", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("size_bytes", BigInteger),
    Column("created_at_us", BigInteger, nullable=False),
    Column("expires_at_us", BigInteger, nullable=False),
    Column("reserved_bytes", BigInteger),  # of an upload; until it is whole it has no size
    Index("ix_files_tenant", "tenant", "id"),
    Index("ix_files_expires_at_us", "expires_at_us"),
)

# Encrypted. Of an upload pieces of its bytes; of what a batch writes the results of its lines, by their places.
file_parts = Table(
    "file_parts",
    metadata,
    Column("file_id", Text, primary_key=True),
    Column("place", Integer, primary_key=True, autoincrement=False),
    Column("sealed", LargeBinary, nullable=False),
)

batches = Table(
    "batches",
    metadata,
    Column("id", Text, primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("key_id", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("created_at_us", BigInteger, nullable=False),
    Column("deadline_us", BigInteger, nullable=False),
    Column("keep_us", BigInteger, nullable=False),
    Column("input_file_id", Text, nullable=False),
    Column("output_file_id", Text, nullable=False),
    Column("error_file_id", Text, nullable=False),
    Column("asked", Text, nullable=False),
    Column("progress", Text, nullable=False),
    Column("problems", Text, nullable=False),
    Column("times_us", Text, nullable=False),
    Column("runner", Text),  # who works on it, until when
    Column("leased_until_us", BigInteger, nullable=False),
    Index("ix_batches_tenant", "tenant", "id"),
    Index("ix_batches_status", "status"),
)

state = Table(
    "state",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", Text, nullable=False),
    Column("updated_at_us", BigInteger, nullable=False),
)
