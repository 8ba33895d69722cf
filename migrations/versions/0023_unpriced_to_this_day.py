"""Finance's views count a request without a price until a correction has given it one, as every report does."""

from alembic import op

revision = "0023"
down_revision = "0022"

NAMES = "key_id, team, project, tags, operation, model, backend, provider, rule, status, is_simulated"
TOKENS = "input_tokens, cached_input_tokens, output_tokens, reasoning_tokens"
COST = (
    "input_pico_usd + cached_input_pico_usd + cache_write_pico_usd + output_pico_usd + other_pico_usd "
    "+ compute_pico_usd + adjustment_pico_usd"
)
VIEWS = {
    "finance_hours": ("hourly", "hour", 3600),
    "finance_days": ("daily", "day", 86_400),
}


def upgrade() -> None:
    _make("unpriced_requests - priced_later_requests AS unpriced_requests")


def downgrade() -> None:
    _make("unpriced_requests")


def _make(unpriced: str) -> None:
    is_sqlite = op.get_bind().dialect.name == "sqlite"
    for name, (table, unit, seconds) in VIEWS.items():
        if is_sqlite:
            op.execute(f"DROP VIEW {name}")
        # Replaced, PostgreSQL's keep who may read them.
        op.execute(
            f"CREATE {'' if is_sqlite else 'OR REPLACE '}VIEW {name} AS SELECT "
            f"sums.{unit} * {seconds} AS start_epoch_seconds, {NAMES}, requests, {unpriced}, estimated_requests, "
            f"{TOKENS}, ({COST}) / 1e12 AS cost_usd, list_pico_usd / 1e12 AS list_usd, "
            f"compute_pico_usd / 1e12 AS gpu_usd, gpu_us / 1e6 AS gpu_seconds "
            f"FROM {table} AS sums JOIN dimensions ON dimensions.id = sums.dimension_id"
        )
