"""Whether owning the GPU pays: verdict, curves, what moves it, and sliders of what-ifs that the gateway computes."""

import json
from html import escape
from typing import Any

from nicegui import ui

from dashboards import charts, display, markup
from dashboards.frame import View, chart, grid, html, panel
from dashboards.gateway_client import GatewayRefused, GatewayUnreachable
from dashboards.levers import LEVERS
from dashboards.markup import Cell, Column
from dashboards.pages.break_even_levers import build_levers

PATH = "/admin/v1/reports/break-even"
OTHERS = ("hosted_model", "purchase_usd")


async def build(view: View) -> None:
    """Everything here is computed by the gateway; `breakeven break-even` prints the same report."""
    given = {name: view.query(name) for name in (*(lever.name for lever in LEVERS), *OTHERS)}
    found = await view.gateway.get(PATH, **view.period.bounds(), **given)
    box = panel("What if", "Move a handle: the report below is computed again. Growth and purchase are for payback.")
    results = ui.element("div")
    asked = 0

    async def ask(changed: dict[str, str]) -> None:
        """The same page for other values, in its place; its address keeps them. The last of quick changes counts."""
        nonlocal asked
        asked += 1
        mine = asked
        try:
            again = await view.gateway.get(PATH, **view.period.bounds(), **changed)
        except (GatewayRefused, GatewayUnreachable) as error:
            results.clear()
            with results:
                html(markup.message("Nothing to show", str(error), tone="warn"))
            return
        if mine != asked:
            return
        results.clear()
        with results:
            _results(again)
        ui.run_javascript(f"history.replaceState(null, '', {json.dumps(view.link('/break-even', **changed))})")

    with box:
        build_levers(found, given, ask)
    with results:
        _results(found)


def _results(found: dict[str, Any]) -> None:
    report = found["report"]
    with panel("Verdict"):
        caveats = "".join(f"<li>{escape(one)}</li>" for one in report["caveats"])
        html(f'<div class="be-verdict">{escape(report["verdict"])}</div><ul class="be-caveats">{caveats}</ul>')
    html(markup.tiles([*_tiles(report), *_payback(found["payback"])]))
    here = report["observed"]["requests_per_day"]
    with panel(
        "Bills of a month over volume", f"US dollars per {report['month']['hours']:.0f} hours, at the observed mix."
    ):
        chart(
            charts.cost_curves(found["curve"], here),
            "Monthly cost over requests a day, hosted and with own GPUs; the table below has the staircase",
            is_tall=True,
        )
    with grid("be-two"):
        with panel("The staircase", "Each further GPU must save more hosted calls than its rent."):
            html(_staircase(report["staircase"]))
        with panel("What moves the saving", "Each input a quarter lower and a quarter higher, all else as it is."):
            swings = [
                (
                    one["input"],
                    float(one["saving_at_minus_25_percent_usd"]),
                    float(one["saving_at_plus_25_percent_usd"]),
                )
                for one in report["tornado"]
            ]
            chart(charts.tornado(swings, float(report["month"]["plan_saving_usd"])), "Sensitivity of the saving")
    with panel("What was observed"):
        html(_observed(report))


def _tiles(report: dict[str, Any]) -> list[str]:
    month, unit, owned, sure = report["month"], report["unit"], report["owned"], report["confidence"]
    saving = float(month["plan_saving_usd"])
    per = f"per month of {month['hours']:.0f} h"
    shown = [
        markup.tile("Everything hosted", display.dollars(month["all_hosted_usd"]), f"{per} · {report['hosted']}"),
        markup.tile("With this plan", display.dollars(month["plan_usd"]), f"{per} · {report['plan']}"),
        markup.tile(
            "Saving", display.dollars(month["plan_saving_usd"]), _interval(sure), tone="good" if saving > 0 else "bad"
        ),
        markup.tile(
            "Capacity used",
            display.share(owned["utilisation"]),
            ("measured" if owned["is_measured"] else "expected") + f"; idle rent {display.dollars(owned['idle_usd'])}",
        ),
        markup.tile(
            "Pays above", display.share(unit["break_even_utilisation"]), "of its capacity; over 100 % is never"
        ),
        markup.tile("Cheapest fleet", _gpus(month["best_replicas"]), f"{display.dollars(month['best_usd'])} {per}"),
    ]
    volume = report["volume"]["hybrid"]
    shown.append(
        markup.tile(
            "Break-even volume",
            f"{volume['requests_per_day']:,.0f} / day" if volume else "never",
            f"requests; {display.dollars(volume['hosted_usd_per_month'])} a month hosted"
            if volume
            else "at any volume",
        )
    )
    if sure is not None:
        shown.append(
            markup.tile(
                "Chance that owning pays",
                display.share(sure["probability_owning_is_cheaper"], places=0),
                f"{sure['days']} days resampled",
            )
        )
    return shown


def _gpus(count: int) -> str:
    return "1 GPU" if count == 1 else f"{count:,} GPUs"


def _payback(found: dict[str, Any] | None) -> list[str]:
    if found is None:
        return []
    note = f"of {display.dollars(str(found['purchase_usd']))}, bought instead of rented"
    if found["months"] is None:
        recovered = display.dollars(str(round(found["best_recovered_usd"], 2)))
        return [markup.tile("Paid back", "never", f"{note}; at most {recovered} of it", tone="bad")]
    return [markup.tile("Paid back", f"{found['months']} months", note, tone="good")]


def _interval(sure: dict[str, Any] | None) -> str:
    if sure is None:
        return "per month; one day says nothing of its spread"
    return f"per month; 5–95 %: {display.dollars(sure['saving_low_usd'])} – {display.dollars(sure['saving_high_usd'])}"


def _staircase(rows: list[dict[str, Any]]) -> str:
    return markup.table(
        [
            Column("GPUs", is_number=True),
            Column("Saves hosted", is_number=True),
            Column("Rent", is_number=True),
            Column("Pays"),
            Column("Whole bill", is_number=True),
        ],
        [
            [
                str(row["replicas"]),
                display.dollars(row["value_usd"]),
                display.dollars(row["rent_usd"]),
                Cell("yes", tone="good") if row["pays"] else Cell("no", tone="bad"),
                display.dollars(row["overflow_total_usd"] or row["fluid_total_usd"]),
            ]
            for row in rows
        ],
        caption="What each further GPU saves and costs in a month",
    )


def _observed(report: dict[str, Any]) -> str:
    seen, unit, owned = report["observed"], report["unit"], report["owned"]
    return markup.facts(
        [
            ("Period", f"{display.period(seen['start'], seen['end'])} ({seen['hours']:,} hours, {seen['days']} days)"),
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
