"""How the backends and our own engine are right now, as the answering gateway process sees them."""

from typing import Any

from dashboards import charts, display, markup
from dashboards.frame import Chart, View, grid, html, panel
from dashboards.markup import Cell, Column

STATES = {
    "closed": Cell("closed", tone="good"),
    "open": Cell("open", tone="bad"),
    "half_open": Cell("probing", tone="warn"),
}


ANOTHER = (
    (
        "A provider",
        "its key in the gateway's environment, such as `OPENAI_API_KEY`; `breakeven doctor` lists the names. "
        "Provider keys are not stored anywhere, so they cannot be entered here.",
    ),
    ("Another key of a provider", "`OPENAI_API_KEY_2` and so on."),
    (
        "Your own GPU or endpoint",
        "a block under `backends` in breakeven.yaml; `gpu_hour_usd` in it is its rent, and `throughput`, which "
        "`breakeven bench backend NAME` measures, what it does for that.",
    ),
    ("Other prices", "a file named by `price_overrides` in breakeven.yaml."),
)
"""What is added where; none of it on this page."""


async def build(view: View) -> None:
    """Backends, breakers, engine."""
    found = await view.gateway.get("/admin/v1/backends")
    with panel(
        "Backends", "The state of engines is polled twice a second; hosted providers are judged by their answers."
    ):
        html(_backends(found["backends"]))
    with panel("Adding another", "Each takes effect at the gateway's next start."):
        html(markup.facts(ANOTHER))
    breakers = [(one["name"], breaker) for one in found["backends"] for breaker in one["breakers"]]
    saved, burst = found["retry_budget_saved"], found["retry_budget_burst"]
    with panel(
        "Circuit breakers",
        f"Retry budget: {saved:,.0f} of {burst:,.0f} retries saved up. An open breaker sends traffic elsewhere.",
    ):
        if breakers:
            html(_breakers(breakers))
        else:
            html(markup.message("No calls yet", "A breaker appears with the first call to a model."))
    engine = await view.gateway.get("/admin/v1/engine")
    if not engine["is_configured"]:
        with panel("Engine"):
            html(markup.message("No bundled engine", "It is switched off in breakeven.yaml."))
        return
    with panel("Engine", engine["model"] or ""):
        html(markup.tiles(_engine(engine)))
        if engine["is_assumed"]:
            html(
                '<div class="be-banner warn">These throughput figures are assumed: this machine has not been measured '
                "yet. <code>breakeven bench engine</code> does it.</div>"
            )
    with grid("be-two"):
        with panel("Throughput curve", "Decode tokens per second of all sequences together."):
            points = [(p["concurrency"], p["decode_tokens_per_second"]) for p in engine["points"]]
            Chart(charts.throughput(points, engine["working_concurrency"]), "Throughput over concurrency")
        with panel("Points"):
            html(
                markup.table(
                    [
                        Column("Sequences at once", is_number=True),
                        Column("Tokens / s, all", is_number=True),
                        Column("Tokens / s, each", is_number=True),
                    ],
                    [[str(n), f"{x:,.1f}", f"{x / n:,.1f}"] for n, x in points],
                    caption="Throughput by concurrency",
                )
            )


def _backends(rows: list[dict[str, Any]]) -> str:
    return markup.table(
        [
            Column("Backend"),
            Column("Health"),
            Column("In flight", is_number=True),
            Column("Slots free", is_number=True),
            Column("Running", is_number=True),
            Column("Waiting", is_number=True),
            Column("Queue", is_number=True),
        ],
        [
            [
                one["name"],
                _health(one),
                str(one["in_flight"]),
                _number(one["free_slots"]),
                _number(one["running_requests"]),
                _number(one["waiting_requests"]),
                display.seconds(one["queue_seconds"]),
            ]
            for one in rows
        ],
        caption="Backends",
    )


def _health(one: dict[str, Any]) -> Cell:
    if one["is_simulated"]:
        return Cell("simulated: no model answers", tone="warn")
    if one["is_starting"]:
        return Cell("loading", tone="warn")
    if one["is_healthy"] is None:
        return Cell("not asked", tone="muted")
    return Cell("healthy", tone="good") if one["is_healthy"] else Cell(f"down: {one['detail']}", tone="bad")


def _breakers(breakers: list[tuple[str, dict[str, Any]]]) -> str:
    return markup.table(
        [
            Column("Backend"),
            Column("Model there"),
            Column("State"),
            Column("Failures", is_number=True),
            Column("Cool-down", is_number=True),
        ],
        [
            [
                name,
                one["upstream_model"],
                STATES[one["state"]],
                str(one["failures"]),
                display.seconds(one["cool_down_seconds"]),
            ]
            for name, one in breakers
        ],
        caption="Circuit breakers",
    )


def _engine(engine: dict[str, Any]) -> list[str]:
    health = "healthy" if engine["is_healthy"] else "loading" if engine["is_starting"] else "down"
    tone = {"healthy": "good", "down": "bad"}.get(health, "warn")
    said = "requests wait for it" if health == "loading" else engine["detail"] or "as reported by the engine"
    is_known = engine["running_requests"] is not None
    busy = (
        f"{engine['running_requests']} running, {_number(engine['waiting_requests'])} waiting · now" if is_known else ""
    )
    decode = f"{engine['working_tokens_per_second'] or 0:,.1f} tok/s"
    return [
        markup.tile("State", health, f"{said} · now", tone=tone),
        markup.tile("Slots free", _number(engine["free_slots"]), busy),
        markup.tile("Prefill", f"{engine['prefill_tokens_per_second'] or 0:,.0f} tok/s", "of prompt tokens"),
        markup.tile("Decode", decode, f"fitted; all sequences at {engine['working_concurrency']} at once"),
        markup.tile("GPU hour", display.rate(engine["gpu_hour_usd"]), "as configured"),
    ]


def _number(value: int | None) -> str:
    return display.UNKNOWN if value is None else str(value)
