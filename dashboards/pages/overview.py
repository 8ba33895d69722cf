"""The first page: one period in a dozen numbers, each of which leads to the requests behind it."""

from datetime import UTC, datetime
from decimal import Decimal
from html import escape
from typing import Any

from nicegui import ui

from dashboards import certainty, charts, display, markup
from dashboards.earlier import Earlier, earlier_of
from dashboards.frame import Chart, View, grid, html, no_requests, panel
from dashboards.gateway_client import GatewayRefused, GatewayUnreachable
from dashboards.markup import Cell, Column
from dashboards.periods import Period

WORRYING = 0.2
ROUNDS_TO_NOTHING = 0.005
SAVINGS = (
    "What the same tokens would cost at one model's price today, minus what they cost at the prices of their time. "
    "Idle rent, shadow calls and their judge count as spent; embeddings, images and sound are on neither side."
)
BUDGETS = "budgets"
NOTHING = {"cost_usd": "0", "requests": 0}
"""Stands for a period that the books do not cover: it is not compared with."""


async def build(view: View) -> None:
    """Numbers, spend over time, savings, models, token mix."""
    before = view.period.before()
    compare = {"compare_since": before.since.isoformat(), "compare_until": before.until.isoformat()}
    found = await view.gateway.get("/admin/v1/reports/overview", **view.period.bounds(), **compare)
    total = found["total"]
    if not total["requests"]:
        html(no_requests(view, found["books_begin"]))
        if found["books_begin"] is not None:  # e.g. on the first of a month: its budget matters all the same
            html(markup.tiles(_idle(found, view)))
            _month_under_way(found, view)
        return
    if said := certainty.simulated(total):
        html(said)
    then = found["earlier"]["total"] if found["earlier"] else NOTHING
    html(markup.tiles(_tiles(found, then, earlier_of(view.period, found["books_begin"]), view)))
    _month_under_way(found, view)
    _notes(found, view)
    with panel(f"Spend per {found['bucket']} by model", f"US dollars, {view.period.phrase}, UTC."):
        points = [(p["start"], p["model"], float(p["cost_usd"])) for p in found["spend"]]
        if any(usd for _, _, usd in points):
            Chart(
                charts.stacked_bars(points, each=found["bucket"]),
                "Spend over time by model; its numbers can be opened below it",
                numbers=lambda: spend_table(found["spend"], found["bucket"]),
            )
        else:
            html(certainty.nothing_spent(total))
    with panel("Models", certainty.ADDS_UP):
        html(models_table(found["models"], total, view))
    with grid("be-two"):
        with panel("Token mix", "A blended price hides its mix: input tokens are many and cheap, output few and dear."):
            html(_mix(total))
        with panel("Savings", SAVINGS):
            html(_savings(found["savings"]))


def _tiles(found: dict[str, Any], before: dict[str, Any], earlier: Earlier, view: View) -> list[str]:
    total = found["total"]
    return [
        *volume_tiles(found, before, earlier, view),
        *_prices(total, view),
        *_speeds(total),
        *saved_tiles(found["savings"], has_rent=found["idle"] is not None),
        *_idle(found, view),
    ]


def volume_tiles(found: dict[str, Any], before: dict[str, Any], earlier: Earlier, view: View) -> list[str]:
    """Spend and requests, each compared with the period before."""
    total, label = found["total"], view.period.label
    is_known = display.cost(total) == total["cost_usd"]
    requests = view.link("/requests") if view.session.may("entries.read") else None
    return [
        markup.tile(
            "Spend",
            display.spend(total),
            (label if found["idle"] is None else f"{label}, without idle GPU rent")
            + against(total["cost_usd"], before["cost_usd"], earlier, view.period),
            title=display.exact_dollars(total["cost_usd"]) if is_known else "",
            href=view.link("/explorer", by="team", then="model"),
        ),
        markup.tile(
            "Requests",
            display.count(total["requests"]),
            f"{_success(total)} answered" + against(total["requests"], before["requests"], earlier, view.period),
            href=requests,
        ),
    ]


def against(now: str | int, before: str | int, earlier: Earlier, period: Period) -> str:
    """`; +12 % against the 30 days before`, or why not if the books begin within them; empty if they had none."""
    if earlier.is_cut:
        return f"; not compared with {period.before_phrase}, within which the books begin"
    changed = display.change(now, before)
    if changed is None:
        return ""
    return f"; {changed} {'that of' if changed == display.MUCH_MORE else 'against'} {period.before_phrase}"


def _prices(total: dict[str, Any], view: View) -> list[str]:
    return [
        markup.tile(
            "Blended price",
            display.dollars(total["blended_usd_per_mtok"]),
            f"per million tokens · {_mix_note(total)}",
            href=view.link("/explorer", by="model"),
        ),
        markup.tile(
            "Input price", display.dollars(total["input_usd_per_mtok"]), "per million input tokens, cache included"
        ),
        markup.tile("Output price", display.dollars(total["output_usd_per_mtok"]), "per million output tokens"),
    ]


def _speeds(total: dict[str, Any]) -> list[str]:
    return [
        markup.tile(
            "Time to first token",
            display.seconds(total["time_to_first_token_p50_seconds"]),
            "no answer was streamed in this time"
            if total["time_to_first_token_p50_seconds"] is None
            else f"median; 95 % under {display.seconds(total['time_to_first_token_p95_seconds'])} · streams",
        ),
        markup.tile(
            "Decode speed",
            display.speed(total["decode_tokens_per_second_p50"]),
            "median per stream, after the first token",
        ),
    ]


def saved_tiles(savings: list[dict[str, Any]], *, has_rent: bool) -> list[str]:
    """Compared with the most expensive model of the report; a negative saving is called `Spent more`. Unlike the spend
    it counts idle rent, and says so."""
    best = next(reversed(savings), None)
    if best is None or is_of_nothing(best):
        return []
    saved, against_it = Decimal(best["saved_usd"]), f"always {best['against']} at today's price"
    against_it += ", idle rent included" if has_rent else ""
    if saved < 0:
        return [markup.tile("Spent more", display.dollars(-saved), f"than {against_it}", tone="bad")]
    return [markup.tile("Saved", display.dollars(saved), f"against {against_it}", tone="good" if saved else "")]


def _idle(found: dict[str, Any], view: View) -> list[str]:
    idle = found["idle"]
    if idle is None:
        return []
    note = f"of {display.dollars(idle['rent_usd'])} rent; {display.share(idle['utilisation'])} used"
    tone = "warn" if idle["utilisation"] < WORRYING else ""
    href = view.link("/utilisation")
    return [markup.tile("GPU rent, idle", display.dollars(idle["idle_usd"]), note, tone=tone, href=href)]


def _month_under_way(found: dict[str, Any], view: View) -> None:
    month = html('<p class="be-note be-pending">Simulating the rest of this month…</p>')
    ui.timer(0.1, lambda: _show_month(view, month, has_rent=found["idle"] is not None), once=True)


async def _show_month(view: View, place: ui.html, *, has_rent: bool) -> None:
    """The month's forecast. Simulating it takes longer than the rest of the page, so it is added afterwards."""
    try:
        whole = (await view.gateway.get("/admin/v1/budgets", scope="all"))["budgets"]
        budget = whole[0]["month_usd"] if whole else None
        found = await view.gateway.get("/admin/v1/reports/forecast", days=1, budget_usd=budget)
    except (GatewayRefused, GatewayUnreachable) as error:
        place.set_content(f'<p class="be-note">No forecast of this month: {escape(str(error))}</p>')
        return
    place.set_content(markup.tiles(month_tiles(found["month"], found["budget"], has_rent=has_rent)))


def month_tiles(found: dict[str, Any], budget: dict[str, Any] | None, *, has_rent: bool = False) -> list[str]:
    """The current calendar month (UTC), whatever period the page shows: the figures of `breakeven forecast`."""
    month = datetime.now(UTC).strftime("%B %Y")
    span = f"{display.dollar_range(found['low_usd'], found['high_usd'])} in 9 of 10 simulations"
    tiles = [
        markup.tile(
            "Spent this month",
            display.dollars(found["spent_usd"]),
            f"{month} so far, UTC" + (", without idle GPU rent" if has_rent else ""),
            href="explorer?by=team&period=month",
        ),
        markup.tile("Forecast of this month", display.dollars(found["expected_usd"]), f"{span} · {month}"),
    ]
    if budget is None:
        return [*tiles, markup.tile("Budget of this month", "none", "set one on the page Budgets", href=BUDGETS)]
    used = Decimal(budget["expected_usd"]) / Decimal(budget["budget_usd"])
    chance = display.share(budget["probability_of_exceeding"], places=0)
    tone = "bad" if used > 1 else "warn" if budget["probability_of_exceeding"] > WORRYING else "good"
    note = f"{display.share(float(used), places=0)} forecast to be used; {chance} chance of exceeding it"
    amount = display.dollars(budget["budget_usd"])
    return [*tiles, markup.tile("Budget of this month", amount, note, tone=tone, href=BUDGETS)]


def _notes(found: dict[str, Any], view: View) -> None:
    keys = view.link("/explorer", by="team", then="key")
    if said := certainty.left_out(found["total"]) + certainty.off_path(found) + certainty.without_team(found, keys):
        html(said)


def spend_table(points: list[dict[str, Any]], bucket: str) -> str:
    """The values of the chart, one column per model."""
    models = sorted({point["model"] for point in points})
    spent: dict[str, dict[str, str]] = {}
    for point in points:
        spent.setdefault(point["start"], {})[point["model"]] = point["cost_usd"]
    columns = [Column(f"{bucket.capitalize()}, UTC"), *(Column(name, is_dollars=True) for name in models)]
    name_of = display.hour if bucket == "hour" else display.day
    rows = [[name_of(start), *(of.get(name) for name in models)] for start, of in sorted(spent.items())]
    return markup.table(columns, rows, caption=f"Spend per {bucket} by model")


def models_table(rows: list[dict[str, Any]], total: dict[str, Any], view: View) -> str:
    """The last row is `total`, the whole period's as in the tiles: not a sum of rounded figures."""
    columns = [
        Column("Model"),
        Column("Requests", is_number=True),
        Column("Spend", is_dollars=True),
        Column("$ / M input", is_dollars=True),
        Column("$ / M output", is_dollars=True),
        Column("$ / M blended", is_dollars=True),
        Column("$ / request", is_dollars=True),
        Column(
            "First token p50\N{NO-BREAK SPACE}/\N{NO-BREAK SPACE}p95,\N{NO-BREAK SPACE}s",
            is_number=True,
            title="Streams only",
        ),
        Column("Tok/s, p50", is_number=True, title="decode: tokens per second of one stream"),
    ]
    body: list[list[Cell | str | None]] = [[_model(row["group"]["model"], view), *_figures(row)] for row in rows]
    return markup.table(
        columns, [*body, [Cell("Total", tone="be-total"), *_figures(total)]], caption="Cost and speed by model"
    )


def _model(name: str | None, view: View) -> Cell:
    href = view.link("/requests", model=name) if view.session.may("entries.read") else None
    return Cell(name or "none", href=href, tone="be-name")


def _figures(row: dict[str, Any]) -> list[Cell | str | None]:
    return [
        display.count(row["requests"]),
        display.cost(row),
        row["input_usd_per_mtok"],
        row["output_usd_per_mtok"],
        row["blended_usd_per_mtok"],
        row["cost_per_request_usd"],
        _first_token(row["time_to_first_token_p50_seconds"], row["time_to_first_token_p95_seconds"]),
        display.speed(row["decode_tokens_per_second_p50"]).removesuffix(" tok/s"),
    ]


def _first_token(median: float | None, slowest: float | None) -> str:
    known = median is not None or slowest is not None
    return f"{display.bare_seconds(median)} / {display.bare_seconds(slowest)}" if known else display.UNKNOWN


def _mix(total: dict[str, Any]) -> str:
    fresh = total["input_tokens"] - total["cached_input_tokens"]
    parts = [
        ("input, not cached", fresh),
        ("input from cache", total["cached_input_tokens"]),
        ("output", total["output_tokens"]),
    ]
    everything = sum(count for _, count in parts)
    if not everything:
        return markup.message("No tokens", "No request in this time was answered with any.")
    return markup.shares_bar(
        [(name, count, f"{display.tokens(count)} ({display.share(count / everything)})") for name, count in parts]
    )


def _savings(savings: list[dict[str, Any]]) -> str:
    if not savings:
        return markup.message("Nothing to compare with", "No hosted model with a known price is configured.")
    if all(is_of_nothing(one) for one in savings):
        return markup.message("Nothing to compare yet", "No answer in this time has both tokens and a known price.")
    return markup.table(
        [
            Column("Always this model"),
            Column("Would cost", is_dollars=True),
            Column("Saved", is_dollars=True),
            Column("This was", is_number=True),
        ],
        [
            [
                one["against"],
                one["would_have_cost_usd"],
                Cell(one["saved_usd"], tone=_saved_tone(Decimal(one["saved_usd"]))),
                beside(one["saved_share"]),
            ]
            for one in savings
        ],
        caption="Savings against one model for everything",
    )


def _saved_tone(usd: Decimal) -> str:
    return "bad" if usd < 0 else "good" if usd else ""


def is_of_nothing(saving: dict[str, Any]) -> bool:
    """Whether nothing was spent, and nothing would have been with the other model."""
    return not Decimal(saving["would_have_cost_usd"]) and not Decimal(saving["saved_usd"])


def beside(saved_share: float | None) -> str:
    """What was spent, relative to what it would have been: `4 % less`, `19 % more`, `19 × as much`."""
    if saved_share is None:
        return display.UNKNOWN
    if saved_share < -1:
        return f"{1 - saved_share:,.{0 if saved_share < -9 else 1}f} × as much"
    if abs(saved_share) < ROUNDS_TO_NOTHING:
        return "as much"
    return f"{display.share(abs(saved_share), places=0)} {'less' if saved_share > 0 else 'more'}"


def _success(total: dict[str, Any]) -> str:
    return display.share(total["successful_requests"] / total["requests"]) if total["requests"] else display.UNKNOWN


def _mix_note(total: dict[str, Any]) -> str:
    tokens = total["input_tokens"] + total["output_tokens"]
    return f"{display.share(total['input_tokens'] / tokens, places=0)} input" if tokens else "no tokens"
