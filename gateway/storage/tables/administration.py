"""What administrators set and did: keys, budgets and their notices, rents, rules, the audit log."""

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

state = Table(
    "state",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", Text, nullable=False),
    Column("updated_at_us", BigInteger, nullable=False),
)
