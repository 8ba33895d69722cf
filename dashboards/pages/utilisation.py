"""How much of the paid GPU time requests used; the rest is the idle line."""

from decimal import Decimal
from typing import Any

from dashboards import charts, display, markup
from dashboards.frame import Chart, View, html, no_requests, panel
from dashboards.periods import link, time_of

NO_GPU = markup.message(
    "No GPU of your own",
    "The bundled engine is switched off, so there is no rent and nothing idle. `breakeven what-if` says whether "
    "renting one would pay.",
)


async def build(view: View) -> None:
    """Rent = used + idle, hour by hour."""
    found = await view.gateway.get("/admin/v1/reports/utilisation", **view.period.bounds())
    if found["idle"] is None:
        html(await _nothing_paid(view) if found["is_configured"] else NO_GPU)
        return
    html(build_tiles(found, view.period.label))
    with panel("Used and idle by the hour", "Everything above the area was paid for but idle. Hours in UTC."):
        points = [(p["start"], p["used_gpu_seconds"], p["paid_gpu_seconds"]) for p in found["hours"]]
        what = "GPU utilisation by the hour in per cent of paid time; its numbers can be opened below it"
        drawn = charts.used_and_paid(points, found["break_even_busy_share"])
        Chart(drawn, what, size="tall", numbers=lambda: hours_table(found, found["hours"], view, "Every hour"))
    with panel("Busiest hours"):
        html(_busiest(found, view))
        every_hour = markup.downloads("Every hour", lambda form: view.link(f"/export/utilisation.{form}"))
        html(f'<div class="be-actions be-downloads">{every_hour}</div>')


async def _nothing_paid(view: View) -> str:
    """The engine counts as paid from the ledger's first request on: this time is before it, or still to come."""
    costs = await view.gateway.get("/admin/v1/reports/costs", **view.period.bounds(), costs_alone=True)
    return no_requests(view, costs["books_begin"])


def build_tiles(found: dict[str, Any], period: str) -> str:
    idle, pays, busy = found["idle"], found["break_even_utilisation"], found["break_even_busy_share"]
    return markup.tiles(
        [
            markup.tile("GPU time used", display.share(idle["utilisation"]), f"of what was paid · {period}"),
            markup.tile("Rent", display.dollars(idle["rent_usd"]), f"{rent_note(found)} · {period}"),
            markup.tile("Used by requests", display.dollars(idle["used_usd"]), "GPU-seconds at the hour's price"),
            markup.tile("Idle", display.dollars(idle["idle_usd"]), "paid, used by nobody", tone="warn"),
            markup.tile(
                "Pays above",
                display.share(pays) if pays is not None else "unknown",
                _of_what(pays, busy) if len(found["backends"]) < 2 else "several GPUs: Break-even tells it of each",
                tone="" if pays is None else "good" if pays <= 1 and idle["utilisation"] >= busy else "warn",
            ),
        ]
    )


def _of_what(pays: float | None, busy: float | None) -> str:
    if pays is None or busy is None or pays > 1:
        return "of its capacity; see Break-even"
    if busy > 1:
        return "of its capacity; batches as small as these never get there; see Break-even"
    return f"of its capacity; in batches like these, {display.share(busy)} of the time; see Break-even"


def rent_note(found: dict[str, Any]) -> str:
    """How the rent comes about: the paid hours, at the mean of their prices. If that is not today's price it says so,
    because nobody configured that number."""
    hours = round(sum(point["paid_gpu_seconds"] for point in found["hours"]) / 3600)
    if not hours:
        return "no hour was paid for"
    mean, now = display.rate(Decimal(found["idle"]["rent_usd"]) / hours), display.rate(found["gpu_hour_usd"])
    on_average = "" if mean == now else f" on average, {now} now"
    return f"{markup.counted(hours, 'GPU hour')} at {mean}{on_average}"


def _busiest(found: dict[str, Any], view: View) -> str:
    busiest = sorted(found["hours"], key=lambda p: -p["used_gpu_seconds"])[:8]
    return hours_table(found, busiest, view, "The hours in which the GPU was used most")


def hours_table(found: dict[str, Any], hours: list[dict[str, Any]], view: View, caption: str) -> str:
    """In the order given."""
    backend = found["backends"][0] if len(found["backends"]) == 1 else None
    is_of_one_year = view.period.is_of_one_year
    return markup.table(
        [
            markup.Column("Hour, UTC"),
            markup.Column("Requests", is_number=True),
            markup.Column("GPU time used", is_number=True),
            markup.Column("Utilisation", is_number=True),
        ],
        [
            [
                markup.Cell(
                    display.hour(p["start"]) if is_of_one_year else display.group_time("hour", p["start"]),
                    href=_requests_of(p["start"], backend, view),
                ),
                display.count(p["requests"]),
                f"{p['used_gpu_seconds']:,.0f} s",
                display.share(p["used_gpu_seconds"] / p["paid_gpu_seconds"] if p["paid_gpu_seconds"] else None),
            ]
            for p in hours
        ],
        caption=caption,
    )


def _requests_of(hour: str, backend: str | None, view: View) -> str | None:
    """An hour's requests on our own GPU (of several: all requests), for those who may see single requests."""
    if not view.session.may("entries.read"):
        return None
    return link("/requests", time_of("hour", hour), backend=backend)
