"""Read-only views for dashboards in SQL: dollars instead of pico-dollars, names instead of dimension numbers.

A later migration that changes `hourly`, `daily`, `dimensions` or `budgets` drops these first and makes them again.
"""

from alembic import op

revision = "0005"
down_revision = "0004"

NAMES = "key_id, team, project, tags, operation, model, backend, provider, rule, status, is_simulated"
COUNTS = (
    "requests, unpriced_requests, estimated_requests, input_tokens, cached_input_tokens, output_tokens, "
    "reasoning_tokens"
)
COST = (
    "input_pico_usd + cached_input_pico_usd + cache_write_pico_usd + output_pico_usd + other_pico_usd "
    "+ compute_pico_usd + adjustment_pico_usd"
)
VIEWS = {
    "finance_hours": ("hourly", "hour", 3600),
    "finance_days": ("daily", "day", 86_400),
}


def upgrade() -> None:
    for name, (table, unit, seconds) in VIEWS.items():
        op.execute(
            f"CREATE VIEW {name} AS SELECT sums.{unit} * {seconds} AS start_epoch_seconds, {NAMES}, {COUNTS}, "
            f"({COST}) / 1e12 AS cost_usd, list_pico_usd / 1e12 AS list_usd, compute_pico_usd / 1e12 AS gpu_usd, "
            f"gpu_us / 1e6 AS gpu_seconds FROM {table} AS sums JOIN dimensions ON dimensions.id = sums.dimension_id"
        )
    # DISTINCT: PostgreSQL would take writes through a view that is one plain table.
    op.execute(
        "CREATE VIEW finance_budgets AS SELECT DISTINCT scope, name, month_pico_usd / 1e12 AS month_usd FROM budgets"
    )


def downgrade() -> None:
    op.execute("DROP VIEW finance_budgets")
    for name in VIEWS:
        op.execute(f"DROP VIEW {name}")
