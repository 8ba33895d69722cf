"""Administrators' settings and actions: keys, budgets and their notices, rents, rules, the audit log."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    false,
)

from gateway.storage.tables.naming import metadata

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

# Replaced secrets: each works until its end, and never again once it is withdrawn. A key's newest few are remembered,
# so that clients that still use one get a precise error.
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

# Keys imported from LiteLLM, by the hash of their secret there: each is imported only once, even if deleted since.
litellm_keys = Table(
    "litellm_keys",
    metadata,
    Column("hash", LargeBinary(32), primary_key=True),
    Column("key_id", Text, nullable=False),
    Column("at_us", BigInteger, nullable=False),
)

# Limits on the cost of a team, a project or everything per calendar month (UTC).
budgets = Table(
    "budgets",
    metadata,
    Column("scope", Text, primary_key=True),
    Column("name", Text, primary_key=True),  # empty for everything
    Column("month_pico_usd", BigInteger, nullable=False),
    Column("set_by", Text, nullable=False),
    Column("set_at_us", BigInteger, nullable=False),
    Column("stops", Boolean, nullable=False, server_default=false()),  # refuses requests above it, else only warns
    CheckConstraint("scope in ('all', 'team', 'project')", name="scope"),
)

# What a budget had spent elsewhere in the window in which it was imported: the latest figure. It counts until that
# window ends, and is in no sum.
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

# Notices to operators that a share of a budget is spent; inserting the row is the claim to send it. A changed amount
# counts as another budget here, and so does each window.
budget_notices = Table(
    "budget_notices",
    metadata,
    Column("scope", Text, primary_key=True),
    Column("name", Text, primary_key=True),  # of a key its id; empty for everything
    Column("window_id", Text, primary_key=True),  # month:2026-11-01; see gateway/limits/values.py
    Column("amount_pico_usd", BigInteger, primary_key=True, autoincrement=False),
    Column("share_per_mille", Integer, primary_key=True, autoincrement=False),  # 0: its forecast
    Column("claimed_at_us", BigInteger, nullable=False),
    Column("told_at_us", BigInteger),  # NULL: being sent
)

# Always a single row. The process that advances `looked_at_us` checks all budgets on behalf of all. `forecast_at_us` is
# when forecasts were last checked; `failing_since_us` is NULL if no notice waits to be sent.
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

# The hourly cost of a backend's GPUs, from a UTC hour (since the epoch) until the next row; NULL: none.
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

# Always a single row; updating it is the compare-and-set.
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

state = Table(
    "state",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", Text, nullable=False),
    Column("updated_at_us", BigInteger, nullable=False),
)

# Which classifiers were in force, as a list that ends with the present one: a row for each change, the highest number
# is valid.
classifier_choices = Table(
    "classifier_choices",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("history", Text, nullable=False),  # JSON
    Column("at_us", BigInteger, nullable=False),
)

# Corrections and adapted artefacts, by their path in a home's folder; they never change.
classifier_files = Table(
    "classifier_files",
    metadata,
    Column("path", Text, primary_key=True),
    Column("content", LargeBinary, nullable=False),
)
