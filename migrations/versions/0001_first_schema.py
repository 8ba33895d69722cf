"""The first schema: ledger, rollups, keys, rules, audit log."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "adjustments",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("at_us", sa.BigInteger(), nullable=False),
        sa.Column("hour", sa.Integer(), nullable=False),
        sa.Column("dimension_id", sa.Integer(), nullable=False),
        sa.Column("request_id", sa.LargeBinary(length=16), nullable=True),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("reference", sa.Text(), nullable=False),
        sa.Column("amount_pico_usd", sa.BigInteger(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("author", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_adjustments")),
        sa.UniqueConstraint("request_id", "kind", "reference", name=op.f("uq_adjustments_request_id")),
    )
    op.create_index("ix_adjustments_hour", "adjustments", ["hour"], unique=False)
    op.create_table(
        "api_keys",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("hash", sa.LargeBinary(length=32), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("team", sa.Text(), nullable=True),
        sa.Column("project", sa.Text(), nullable=True),
        sa.Column("tags", sa.Text(), nullable=False),
        sa.Column("allowed_models", sa.Text(), nullable=True),
        sa.Column("limits", sa.Text(), nullable=False),
        sa.Column("created_at_us", sa.BigInteger(), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("expires_at_us", sa.BigInteger(), nullable=True),
        sa.Column("revoked_at_us", sa.BigInteger(), nullable=True),
        sa.CheckConstraint("role in ('app', 'viewer', 'finance', 'editor', 'owner')", name=op.f("ck_api_keys_role")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_keys")),
        sa.UniqueConstraint("hash", name=op.f("uq_api_keys_hash")),
    )
    op.create_table(
        "attempts",
        sa.Column("request_id", sa.LargeBinary(length=16), nullable=False),
        sa.Column("accepted_at_us", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("backend", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("started_after_us", sa.BigInteger(), nullable=False),
        sa.Column("lasted_us", sa.BigInteger(), nullable=False),
        sa.Column("cost_pico_usd", sa.BigInteger(), nullable=True),
        sa.Column("http_status", sa.Integer(), nullable=True),
        sa.PrimaryKeyConstraint("request_id", "accepted_at_us", "number", name=op.f("pk_attempts")),
        postgresql_partition_by="RANGE (accepted_at_us)",
        sqlite_with_rowid=False,
    )
    op.create_table(
        "audit_log",
        sa.Column("sequence", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("at_us", sa.BigInteger(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("previous_digest", sa.LargeBinary(length=32), nullable=False),
        sa.Column("digest", sa.LargeBinary(length=32), nullable=False),
        sa.PrimaryKeyConstraint("sequence", name=op.f("pk_audit_log")),
    )
    op.create_table(
        "circumstances",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("digest", sa.LargeBinary(length=16), nullable=False),
        sa.Column("requested_model", sa.Text(), nullable=False),
        sa.Column("is_stream", sa.Boolean(), nullable=False),
        sa.Column("rules_version", sa.Text(), nullable=False),
        sa.Column("prices_version", sa.Text(), nullable=False),
        sa.Column("classifier_version", sa.Text(), nullable=False),
        sa.Column("candidates", sa.Text(), nullable=False),
        sa.Column("intended", sa.Text(), nullable=True),
        sa.Column("service_tier", sa.Text(), nullable=True),
        sa.Column("finish_reason", sa.Text(), nullable=True),
        sa.Column("http_status", sa.Integer(), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("is_usage_estimated", sa.Boolean(), nullable=False),
        sa.Column("is_exact", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_circumstances")),
        sa.UniqueConstraint("digest", name=op.f("uq_circumstances_digest")),
    )
    op.create_table(
        "dimensions",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("digest", sa.LargeBinary(length=16), nullable=False),
        sa.Column("key_id", sa.Text(), nullable=False),
        sa.Column("team", sa.Text(), nullable=True),
        sa.Column("project", sa.Text(), nullable=True),
        sa.Column("tags", sa.Text(), nullable=False),
        sa.Column("operation", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("backend", sa.Text(), nullable=False),
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("upstream_model", sa.Text(), nullable=False),
        sa.Column("rule", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("is_simulated", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_dimensions")),
        sa.UniqueConstraint("digest", name=op.f("uq_dimensions_digest")),
    )
    op.create_table(
        "entries",
        sa.Column("request_id", sa.LargeBinary(length=16), nullable=False),
        sa.Column("accepted_at_us", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("dimension_id", sa.Integer(), nullable=False),
        sa.Column("circumstance_id", sa.Integer(), nullable=False),
        sa.Column("input_tokens", sa.BigInteger(), nullable=False),
        sa.Column("cached_input_tokens", sa.BigInteger(), nullable=False),
        sa.Column("cache_write_5m_tokens", sa.BigInteger(), nullable=False),
        sa.Column("cache_write_1h_tokens", sa.BigInteger(), nullable=False),
        sa.Column("output_tokens", sa.BigInteger(), nullable=False),
        sa.Column("reasoning_tokens", sa.BigInteger(), nullable=False),
        sa.Column("input_pico_usd", sa.BigInteger(), nullable=True),
        sa.Column("cached_input_pico_usd", sa.BigInteger(), nullable=True),
        sa.Column("cache_write_pico_usd", sa.BigInteger(), nullable=True),
        sa.Column("output_pico_usd", sa.BigInteger(), nullable=True),
        sa.Column("other_pico_usd", sa.BigInteger(), nullable=True),
        sa.Column("compute_pico_usd", sa.BigInteger(), nullable=True),
        sa.Column("list_pico_usd", sa.BigInteger(), nullable=True),
        sa.Column("lower_pico_usd", sa.BigInteger(), nullable=True),
        sa.Column("upper_pico_usd", sa.BigInteger(), nullable=True),
        sa.Column("gpu_us", sa.BigInteger(), nullable=False),
        sa.Column("queue_us", sa.BigInteger(), nullable=True),
        sa.Column("time_to_first_token_us", sa.BigInteger(), nullable=True),
        sa.Column("total_us", sa.BigInteger(), nullable=False),
        sa.Column("prefill_tokens_per_second", sa.Double(), nullable=True),
        sa.Column("decode_tokens_per_second", sa.Double(), nullable=True),
        sa.Column("detail", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("request_id", "accepted_at_us", name=op.f("pk_entries")),
        postgresql_partition_by="RANGE (accepted_at_us)",
        sqlite_with_rowid=False,
    )
    op.create_index("ix_entries_accepted_at_us", "entries", ["accepted_at_us"], unique=False)
    op.create_table(
        "feedback",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("request_id", sa.LargeBinary(length=16), nullable=False),
        sa.Column("key_id", sa.Text(), nullable=False),
        sa.Column("at_us", sa.BigInteger(), nullable=False),
        sa.Column("score", sa.Double(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("comment", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_feedback")),
    )
    op.create_index("ix_feedback_request_id", "feedback", ["request_id"], unique=False)
    op.create_table(
        "hourly",
        sa.Column("hour", sa.Integer(), autoincrement=False, nullable=False),
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
        sa.PrimaryKeyConstraint("hour", "dimension_id", name=op.f("pk_hourly")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "request_bodies",
        sa.Column("request_id", sa.LargeBinary(length=16), nullable=False),
        sa.Column("stored_at_us", sa.BigInteger(), nullable=False),
        sa.Column("key_id", sa.Text(), nullable=False),
        sa.Column("sealed", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("request_id", name=op.f("pk_request_bodies")),
    )
    op.create_index("ix_request_bodies_stored_at_us", "request_bodies", ["stored_at_us"], unique=False)
    op.create_table(
        "rule_versions",
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("author", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("created_at_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("version", name=op.f("pk_rule_versions")),
    )
    op.create_table(
        "state",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.Column("updated_at_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_state")),
    )
    op.create_table(
        "activations",
        sa.Column("sequence", sa.Integer(), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("previous", sa.Text(), nullable=True),
        sa.Column("author", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("at_us", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["version"], ["rule_versions.version"], name=op.f("fk_activations_version")),
        sa.PrimaryKeyConstraint("sequence", name=op.f("pk_activations")),
    )
    op.create_table(
        "active_rules",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.CheckConstraint("id = 1", name=op.f("ck_active_rules_single")),
        sa.ForeignKeyConstraint(["version"], ["rule_versions.version"], name=op.f("fk_active_rules_version")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_active_rules")),
    )


def downgrade() -> None:
    op.drop_table("active_rules")
    op.drop_table("activations")
    op.drop_table("state")
    op.drop_table("rule_versions")
    op.drop_index("ix_request_bodies_stored_at_us", table_name="request_bodies")
    op.drop_table("request_bodies")
    op.drop_table("hourly")
    op.drop_index("ix_feedback_request_id", table_name="feedback")
    op.drop_table("feedback")
    op.drop_index("ix_entries_accepted_at_us", table_name="entries")
    op.drop_table("entries")
    op.drop_table("dimensions")
    op.drop_table("circumstances")
    op.drop_table("audit_log")
    op.drop_table("attempts")
    op.drop_table("api_keys")
    op.drop_index("ix_adjustments_hour", table_name="adjustments")
    op.drop_table("adjustments")
