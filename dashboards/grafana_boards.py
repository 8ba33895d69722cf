"""`python -m dashboards.grafana_boards` writes the Grafana dashboards: their panels as a table, the JSON as its output.

A test checks that the committed files match, and that every metric and column that a panel names exists.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

HERE = Path(__file__).parent / "grafana"
PROMETHEUS = {"type": "prometheus", "uid": "breakeven-prometheus"}
POSTGRES = {"type": "grafana-postgresql-datasource", "uid": "breakeven-postgres"}
WIDTH, HEIGHT = 12, 8


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel. `queries` are (legend, expression): PromQL, or SQL where `is_sql`. `unit` is Grafana's name for it."""

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    description: str = ""
    is_sql: bool = False
    kind: Literal["timeseries", "stat", "table", "barchart"] = "timeseries"


def quantile(share: float, metric: str) -> str:
    return f"histogram_quantile({share}, sum by (le, model) (rate({metric}_bucket[$__rate_interval])))"


OPERATIONS = (
    Panel(
        "Requests by model",
        "reqps",
        (("{{model}}", "sum by (model) (rate(breakeven_requests_total[$__rate_interval]))"),),
    ),
    Panel(
        "Requests that did not complete",
        "reqps",
        (("{{status}}", 'sum by (status) (rate(breakeven_requests_total{status!="completed"}[$__rate_interval]))'),),
    ),
    Panel(
        "Time to first token, median and 95 %",
        "s",
        (
            ("{{model}} p50", quantile(0.5, "breakeven_time_to_first_token_seconds")),
            ("{{model}} p95", quantile(0.95, "breakeven_time_to_first_token_seconds")),
        ),
        "Streams only. Under 0.4 s is fast, over 2 s is slow.",
    ),
    Panel("Whole request, 95 %", "s", (("{{model}}", quantile(0.95, "breakeven_request_duration_seconds")),)),
    Panel(
        "Failed attempts",
        "reqps",
        (
            (
                "{{backend}} {{error}}",
                "sum by (backend, error) (rate(breakeven_failed_attempts_total[$__rate_interval]))",
            ),
        ),
        "Each may have been answered by another model; requests that failed altogether are above.",
    ),
    Panel(
        "Requests decided without the classifier",
        "reqps",
        (("requests", "rate(breakeven_unclassified_requests_total[$__rate_interval])"),),
    ),
    Panel(
        "Entries not yet in the database",
        "short",
        (
            ("entries", "breakeven_ledger_unshipped_entries"),
            ("requests under way", "breakeven_ledger_open_intents"),
        ),
    ),
    Panel("Age of the oldest unshipped entry", "s", (("seconds", "breakeven_ledger_unshipped_seconds"),)),
    Panel(
        "Time until activated rules are in force",
        "s",
        (
            (
                "99 % of workers",
                "histogram_quantile(0.99, sum by (le) (increase(breakeven_rules_taken_over_seconds_bucket[1h])))",
            ),
        ),
        "Seconds from an activation until a worker decides by the new rules, over the last hour.",
    ),
    Panel("Journal on disk", "bytes", (("{{instance}}", "breakeven_ledger_journal_bytes"),)),
)
ENGINE = (
    Panel(
        "GPU-seconds used per second",
        "percentunit",
        (("{{model}}", "sum by (model) (rate(breakeven_gpu_seconds_total[$__rate_interval]))"),),
        "1 is one GPU kept busy by requests; the rest is paid and idle.",
    ),
    Panel("Decode speed of a stream, median and slowest 5 %", "short", (
        ("{{model}} p50", quantile(0.5, "breakeven_decode_tokens_per_second")),
        ("{{model}} p5", quantile(0.05, "breakeven_decode_tokens_per_second")),
    ), "Tokens per second after the first token, as one caller sees it."),
    Panel("Waiting for a slot, 95 %", "s", (("{{model}}", quantile(0.95, "breakeven_queue_seconds")),)),
    Panel(
        "Tokens by class",
        "short",
        (("{{class}}", "sum by (class) (rate(breakeven_tokens_total[$__rate_interval]))"),),
        "Per second. Cached input is part of input, reasoning part of output.",
    ),
)  # fmt: skip
IN_TIME = "WHERE $__unixEpochFilter(start_epoch_seconds)"
COSTS = (
    Panel(
        "Spend by model and hour",
        "currencyUSD",
        (
            (
                "",
                "SELECT to_timestamp(start_epoch_seconds) AS time, model AS metric, SUM(cost_usd) AS usd "
                f"FROM finance_hours {IN_TIME} GROUP BY 1, 2 ORDER BY 1",
            ),
        ),
        "From the ledger, including corrections.",
        is_sql=True,
    ),
    Panel(
        "Spend by team",
        "currencyUSD",
        (
            (
                "",
                f"SELECT COALESCE(team, '(none)') AS team, SUM(cost_usd) AS usd FROM finance_hours {IN_TIME} "
                "GROUP BY 1 ORDER BY 2 DESC",
            ),
        ),
        "Whole UTC hours.",
        is_sql=True,
        kind="barchart",
    ),
    Panel(
        "Cost per million tokens by model, and its tokens",
        "short",
        (
            (
                "",
                "SELECT model, SUM(usd) / NULLIF(SUM(tokens - tokens * unpriced / NULLIF(requests, 0)), 0) * 1e6 "
                "AS usd_per_million, SUM(input_tokens) AS input_tokens, SUM(cached_tokens) AS cached_input_tokens, "
                "SUM(output_tokens) AS output_tokens FROM (SELECT model, SUM(cost_usd) AS usd, "
                "SUM(requests) AS requests, SUM(unpriced_requests) AS unpriced, "
                "SUM(input_tokens + output_tokens) AS tokens, SUM(input_tokens) AS input_tokens, "
                "SUM(cached_input_tokens) AS cached_tokens, SUM(output_tokens) AS output_tokens "
                f"FROM finance_hours {IN_TIME} "
                "GROUP BY model, operation, status, backend, is_simulated) AS parts GROUP BY 1 ORDER BY 2 DESC",
            ),
        ),
        "As in cost reports: without the estimated share of requests whose price is unknown.",
        is_sql=True,
        kind="table",
    ),
    Panel(
        "List price and what was paid",
        "currencyUSD",
        (
            (
                "",
                f"SELECT SUM(list_usd) AS list_usd, SUM(cost_usd) AS paid_usd FROM finance_hours {IN_TIME}",
            ),
        ),
        "GPU time is in both, at what it cost. Corrections are in what was paid only.",
        is_sql=True,
        kind="stat",
    ),
    Panel(
        "Budgets of this month",
        "currencyUSD",
        (
            (
                "",
                "SELECT scope, finance_budgets.name, month_usd, (SELECT COALESCE(SUM(cost_usd), 0) FROM finance_days "
                "WHERE start_epoch_seconds >= EXTRACT(EPOCH FROM date_trunc('month', now() AT TIME ZONE 'UTC')) "
                "AND (scope = 'all' OR (scope = 'team' AND team = finance_budgets.name) "
                "OR (scope = 'project' AND project = finance_budgets.name))) AS spent_usd FROM finance_budgets",
            ),
        ),
        "UTC month, as booked: what a process left behind when it died has no price and is not in it, while budgets "
        "count the most that it may have cost. That, the forecast and the chance of exceeding are in the web UI.",
        is_sql=True,
        kind="table",
    ),
    Panel(
        "Requests without a known price, or with estimated usage",
        "short",
        (
            (
                "",
                "SELECT SUM(unpriced_requests) AS unpriced, SUM(estimated_requests) AS estimated "
                f"FROM finance_hours {IN_TIME}",
            ),
        ),
        "Unpriced requests are missing from all costs.",
        is_sql=True,
        kind="stat",
    ),
    Panel(
        "Current spending",
        "currencyUSD",
        (("{{model}}, $ per hour", "sum by (model) (rate(breakeven_cost_usd_total[$__rate_interval])) * 3600"),),
        "Live, from the metrics. Bills come from the ledger.",
    ),
)
BOARDS: dict[str, tuple[str, tuple[Panel, ...]]] = {
    "operations": ("Breakeven: operations", OPERATIONS),
    "cost": ("Breakeven: cost", COSTS),
    "engine": ("Breakeven: engine", ENGINE),
}


def board(name: str) -> dict[str, Any]:
    """One dashboard as Grafana takes it."""
    title, panels = BOARDS[name]
    return {
        "uid": f"breakeven-{name}",
        "title": title,
        "tags": ["breakeven"],
        "timezone": "utc",
        "schemaVersion": 39,
        "refresh": "1m" if name != "cost" else "",
        "time": {"from": "now-30d" if name == "cost" else "now-6h", "to": "now"},
        "panels": [_panel(number, one) for number, one in enumerate(panels)],
    }


def _panel(number: int, panel: Panel) -> dict[str, Any]:
    source = POSTGRES if panel.is_sql else PROMETHEUS
    targets = [
        {"refId": chr(65 + i), "datasource": source, **_target(panel, legend, query)}
        for i, (legend, query) in enumerate(panel.queries)
    ]
    place = {"w": WIDTH, "h": HEIGHT, "x": WIDTH * (number % 2), "y": HEIGHT * (number // 2)}
    return {
        "id": number + 1,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": source,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": targets,
    }


def _target(panel: Panel, legend: str, query: str) -> dict[str, Any]:
    if panel.is_sql:
        return {"rawQuery": True, "rawSql": query, "format": "time_series" if panel.kind == "timeseries" else "table"}
    return {"expr": query, "legendFormat": legend}


def as_json(name: str) -> str:
    return json.dumps(board(name), indent=1, ensure_ascii=False) + "\n"


def main() -> None:
    for name in BOARDS:
        path = HERE / f"{name}.json"
        path.write_text(as_json(name), encoding="utf-8")
        print(path)


if __name__ == "__main__":
    main()
