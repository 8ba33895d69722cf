"""Content from callers: feedback on answers, stored prompts and answers, files, batches."""

from sqlalchemy import BigInteger, Column, Double, Index, Integer, LargeBinary, Table, Text

from gateway.storage.tables.naming import metadata

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

# Requests that were repeated in the background with another model. Both have an entry; the caller saw the first answer.
shadow_calls = Table(
    "shadow_calls",
    metadata,
    Column("request_id", LargeBinary(16), primary_key=True),
    Column("of_request_id", LargeBinary(16), nullable=False),
    Column("at_us", BigInteger, nullable=False),
    Column("propensity", Double, nullable=False),  # probability of being repeated, times that of this model
    Index("ix_shadow_calls_of_request_id", "of_request_id"),
)

# Prompts and answers of keys that opted in: encrypted, with a retention of their own.
request_bodies = Table(
    "request_bodies",
    metadata,
    Column("request_id", LargeBinary(16), primary_key=True),
    Column("stored_at_us", BigInteger, nullable=False),
    Column("key_id", Text, nullable=False),
    Column("sealed", LargeBinary, nullable=False),
    Index("ix_request_bodies_stored_at_us", "stored_at_us"),
)

# Files of callers and of their batches. One without a size is incomplete.
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
    Column("reserved_bytes", BigInteger),  # by an upload in progress
    Index("ix_files_tenant", "tenant", "id"),
    Index("ix_files_expires_at_us", "expires_at_us"),
)

# Encrypted parts of files: pieces of an upload's bytes, or the results of a batch's lines, by line number.
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
    Column("runner", Text),  # the process that works on it, until `leased_until_us`
    Column("leased_until_us", BigInteger, nullable=False),
    Index("ix_batches_tenant", "tenant", "id"),
    Index("ix_batches_status", "status"),
)
