"""Whether owning the GPU pays: the answer, its curves beside what-if sliders, what moves it, and its assumptions."""

import json
from collections.abc import Callable
from html import escape
from typing import Any, TypeAlias

from nicegui import ui

from dashboards import break_even_answer, charts, display, markup
from dashboards.forms.problem import in_form_words
from dashboards.frame import Chart, View, first_request, grid, html, panel
from dashboards.gateway_client import GatewayRefused, GatewayUnreachable
from dashboards.levers import LEVERS
from dashboards.markup import Cell, Column
from dashboards.pages.break_even_levers import Levers

PATH = "/admin/v1/reports/break-even"
OTHERS = ("backend", "hosted_model", "purchase_usd")
Show: TypeAlias = Callable[[dict[str, Any]], None]
"""Shows another report in the place of the one before."""


async def build(view: View) -> None:
    """Everything here is computed by the gateway; `breakeven break-even` prints the same report."""
    given = {name: view.query(name) for name in (*(lever.name for lever in LEVERS), *OTHERS)}
    try:
        found = await view.gateway.get(PATH, **view.period.bounds(), **given)
    except GatewayRefused as refused:
        if refused.status != 400 or any(given.values()):
            raise
        html(markup.message("Nothing to compare yet", refused.message[:1].upper() + refused.message[1:]))
        costs = await view.gateway.get("/admin/v1/reports/costs", by="model", costs_alone=True, **view.period.bounds())
        if costs["books_begin"] is None:
            html(first_request(view))
        return
    answer = ui.element("div").props('aria-live="polite"')
    with grid("be-wide"):
        beside = ui.element("div")
        levers = panel("What if", "Move a slider to recompute this page. Growth and purchase only affect payback.")
    rest = ui.element("div")
    with answer:
        _answer(found)
    with beside:
        show_picture = _picture(found)
    with rest:
        show_rest = _rest(found)
    asked = 0

    async def ask(changed: dict[str, str]) -> None:
        """Refresh the page for other values and keep them in its address. Of several quick changes the last counts."""
        nonlocal asked
        asked += 1
        mine = asked
        for place in (answer, beside, rest):
            place.classes(add="be-stale be-pending")
        problem = ""
        again: dict[str, Any] = {}
        try:
            again = await view.gateway.get(PATH, **view.period.bounds(), **changed)
        except (GatewayRefused, GatewayUnreachable) as error:
            problem = markup.message("Nothing to show", in_form_words(str(error)), tone="warn")
        if mine != asked:
            return
        answer.clear()
        for place in (answer, beside, rest):
            place.classes(remove="be-stale be-pending")
        for place in (beside, rest):
            place.set_visibility(not problem)
        with answer:
            if problem:
                html(problem)
                return
            _answer(again)
        show_picture(again)
        show_rest(again)
        ui.run_javascript(f"history.replaceState(null, '', {json.dumps(view.link('/break-even', **changed))})")

    with levers:
        Levers(found, given, ask, view.link)


def _answer(found: dict[str, Any]) -> None:
    report = found["report"]
    with panel(break_even_answer.heading(report)).classes("be-answer"):
        html(f'<p class="be-because">{escape(break_even_answer.because(report))}</p>')
        html(markup.facts(break_even_answer.facts(report)))


def _picture(found: dict[str, Any]) -> Show:
    report = found["report"]
    with panel(
        "Bills of a month over volume", f"US dollars per {report['month']['hours']:.0f} hours, at the observed mix."
    ):
        drawn = Chart(
            _curves(found),
            "Monthly cost over requests a day, hosted and with own GPUs; its numbers can be opened below it",
            size="tall",
            numbers=lambda: curve_table(found["curve"]),
        )
    tiles = html(_tiles(found))

    def show(again: dict[str, Any]) -> None:
        drawn.show(_curves(again), lambda: curve_table(again["curve"]))
        tiles.set_content(_tiles(again))

    return show


def _curves(found: dict[str, Any]) -> charts.Options:
    report = found["report"]
    return charts.cost_curves(found["curve"], report["observed"]["requests_per_day"], report["volume"]["hybrid"])


def curve_table(points: list[dict[str, Any]]) -> str:
    """The values of the chart, in dollars a month."""
    names = ("hosted_usd", "owned_usd", "owned_low_usd", "owned_high_usd")
    headings = ("Everything hosted", "Own GPUs, rest hosted", "at least", "at most")
    columns = [Column("Requests a day", is_number=True), *(Column(one, is_dollars=True) for one in headings)]
    rows = [
        [
            display.count(point["requests_per_day"]),
            *(None if point[name] is None else f"{point[name]:.2f}" for name in names),
        ]
        for point in points
    ]
    return markup.table(
        columns, rows, caption="Bills of a month over volume; nine in ten resamples of days lie between"
    )


def tornado_table(report: dict[str, Any]) -> str:
    """The saving a month as it is, and with each input a quarter lower and higher."""
    columns = [Column("Input"), *(Column(name, is_dollars=True) for name in ("25 % lower", "as it is", "25 % higher"))]
    rows: list[list[Cell | str | None]] = [
        [
            one["input"],
            str(one["saving_at_minus_25_percent_usd"]),
            str(report["month"]["plan_saving_usd"]),
            str(one["saving_at_plus_25_percent_usd"]),
        ]
        for one in report["tornado"]
    ]
    return markup.table(columns, rows, caption="Saving a month")


def _rest(found: dict[str, Any]) -> Show:
    with grid("be-two"):
        with panel("The staircase", "Each further GPU must save more in hosted calls than its rent."):
            staircase = html(_staircase(found["report"]["staircase"]))
        with panel("What moves the saving", "Each input a quarter lower and a quarter higher, all else as it is."):
            drawn = Chart(
                _swings(found["report"]),
                "Sensitivity of the saving; its numbers can be opened below it",
                numbers=lambda: tornado_table(found["report"]),
            )
    with panel("In words, and what it assumes"):
        words = html(_words(found["report"]))
    with panel("What was observed"):
        observed = html(_observed(found["report"]))

    def show(again: dict[str, Any]) -> None:
        report = again["report"]
        staircase.set_content(_staircase(report["staircase"]))
        drawn.show(_swings(report), lambda: tornado_table(report))
        words.set_content(_words(report))
        observed.set_content(_observed(report))

    return show


def _swings(report: dict[str, Any]) -> charts.Options:
    swings = [
        (one["input"], float(one["saving_at_minus_25_percent_usd"]), float(one["saving_at_plus_25_percent_usd"]))
        for one in report["tornado"]
    ]
    return charts.tornado(swings, float(report["month"]["plan_saving_usd"]))


def _words(report: dict[str, Any]) -> str:
    caveats = "".join(f"<li>{escape(one)}</li>" for one in report["caveats"])
    verdict = escape(markup.unbroken(report["verdict"].replace("-$", "−$")))
    return f'<div class="be-verdict">{verdict}</div><ul class="be-caveats">{caveats}</ul>'


def _tiles(found: dict[str, Any]) -> str:
    report = found["report"]
    month, unit, owned = report["month"], report["unit"], report["owned"]
    per = f"per month of {month['hours']:.0f} h"
    return markup.tiles(
        [
            markup.tile("Everything hosted", display.dollars(month["all_hosted_usd"]), f"{per} · {report['hosted']}"),
            markup.tile("With this plan", display.dollars(month["plan_usd"]), f"{per} · {report['plan']}"),
            markup.tile(
                "Cheapest fleet",
                markup.counted(month["best_replicas"], "GPU"),
                f"{display.dollars(month['best_usd'])} {per}",
            ),
            markup.tile(
                "Capacity used",
                display.share(owned["utilisation"]),
                capacity_note(owned),
            ),
            markup.tile(
                "Pays above", display.share(unit["break_even_utilisation"]), "of its capacity; over 100 % means never"
            ),
            *payback_tiles(found["payback"]),
        ]
    )


def capacity_note(owned: dict[str, Any]) -> str:
    """By what the capacity is used: shadow calls, for example, take some too. A running engine's rent is as booked."""
    idle = display.dollars(owned["idle_usd"])
    return (
        f"measured, by these requests; idle rent {idle}, as booked"
        if owned["is_measured"]
        else f"expected; idle rent {idle}"
    )


def payback_tiles(found: dict[str, Any] | None) -> list[str]:
    if found is None:
        return []
    note = f"of {display.dollars(str(found['purchase_usd']))}, bought instead of rented"
    if found["months"] is None:
        recovered = display.dollars(str(round(found["best_recovered_usd"], 2)))
        return [markup.tile("Paid back", "never", f"{note}; at most {recovered} of it", tone="bad")]
    return [markup.tile("Paid back", markup.counted(found["months"], "month"), note, tone="good")]


def _staircase(rows: list[dict[str, Any]]) -> str:
    return markup.table(
        [
            Column("GPUs", is_number=True),
            Column("Saves hosted", is_dollars=True),
            Column("Rent", is_dollars=True),
            Column("Pays"),
            Column("Whole bill", is_dollars=True),
        ],
        [
            [
                str(row["replicas"]),
                row["value_usd"],
                row["rent_usd"],
                Cell("yes", tone="good") if row["pays"] else Cell("no", tone="bad"),
                row["overflow_total_usd"] or row["fluid_total_usd"],
            ]
            for row in rows
        ],
        caption="What each further GPU saves and costs in a month",
    )


def _length(seen: dict[str, Any]) -> str:
    return f"{markup.counted(seen['hours'], 'hour')}, {markup.counted(seen['days'], 'day')}"


def _observed(report: dict[str, Any]) -> str:
    seen, unit, owned = report["observed"], report["unit"], report["owned"]
    return markup.facts(
        [
            ("Period", f"{display.period(seen['start'], seen['end'])} ({_length(seen)})"),
            ("Requests", f"{seen['requests']:,} ({seen['requests_per_day']:,.0f} a day)"),
            (
                "Mean request",
                f"{seen['input_tokens_per_request']:,.0f} tokens in, {seen['output_tokens_per_request']:,.0f} out",
            ),
            ("Input from cache", display.share(seen["cached_input_share"])),
            ("Counted by estimate", display.share(seen["estimated_share"])),
            ("GPU time a request takes", f"{unit['gpu_seconds_per_request']:.3f} s"),
            ("Peak to mean", f"{unit['peak_to_mean']:.1f} ×"),
            ("Hosted, per request", display.dollars(unit["hosted_usd_per_request"])),
            ("Own, idle hours included", display.dollars(owned["allocated_usd_per_request"])),
            ("Own, busy seconds only", display.dollars(owned["busy_usd_per_request"])),
        ]
    )
