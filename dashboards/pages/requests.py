"""The list of single requests: filtered and sorted, with the total cost of all that match."""

from collections.abc import Mapping
from html import escape
from typing import Any
from urllib.parse import quote

from dashboards import display, markup
from dashboards.frame import View, html, no_requests, panel
from dashboards.markup import Cell, Column
from dashboards.suggestions import Suggestions, load_suggestions

FILTERS = ("model", "team", "project", "backend", "rule", "tag", "key_id", "end_user", "batch_id", "status")
STATUSES = ("completed", "partial", "cancelled", "failed", "orphaned")
ORDERS = {
    "newest": "newest",
    "cost": "most expensive",
    "total_time": "longest",
    "first_token": "slowest first token",
}
PAGE = 50
TONES = {"completed": "", "partial": "warn", "cancelled": "muted", "failed": "bad", "orphaned": "warn"}


async def build_list(view: View) -> None:
    """Fifty of the requests that match, and the total of all."""
    given = {name: view.query(name) for name in FILTERS}
    wanted = view.query("order") or "newest"
    order = wanted if wanted in ORDERS else "newest"
    html(_form(view, given, order, await load_suggestions(view)))
    before = view.query("before")
    found = await view.gateway.get(
        "/admin/v1/entries", **view.period.bounds(), **given, order=order, before=before, limit=PAGE
    )
    first = view.link("/requests", **given, order=_named(order))
    if not found["entries"] and before is not None:
        said = f"None after the request {before!r} has all of these properties, or there is no such request."
        html(markup.message("No further requests", said) + ways_on(order, first=first, further=None))
        return
    if not found["entries"]:
        if any(given.values()):
            html(markup.message("No requests", "None in this time has all of these properties."))
        else:
            html(no_requests(view, (await _costs(view, {}))["books_begin"]))
        return
    said = await _in_all(view, given)
    with panel(
        "Requests",
        f"Times in UTC, {ORDERS[order]} first. Prompts and answers are not stored. Grey models are simulated. "
        "Costs are as booked at settlement; corrected costs are shown beside them"
        + (", and decide which is most expensive." if order == "cost" else "."),
    ):
        if said:
            html(f'<p class="be-sum">{escape(markup.unbroken(said))}</p>')
        html(requests_table(found["entries"], order=order, has_years=not view.period.is_of_one_year))
        next_before = found["next_before"]
        html(
            ways_on(
                order,
                first=first if before else None,
                further=next_before and view.link("/requests", **given, order=_named(order), before=next_before),
            )
        )


def _named(order: str) -> str | None:
    """The order's name in an address; None for the newest first."""
    return None if order == "newest" else order


def ways_on(order: str, *, first: str | None, further: str | None) -> str:
    """Links below a page of the list: to its beginning and to the page after it."""
    links = [
        (first, f"{ORDERS[order].capitalize()} requests"),
        (further, "Older requests" if order == "newest" else f"The next {PAGE}"),
    ]
    shown = "".join(f'<a href="{escape(href)}">{label}</a>' for href, label in links if href)
    return f'<div class="be-actions">{shown}</div>' if shown else ""


async def _in_all(view: View, given: dict[str, str | None]) -> str:
    """The total of everything that matches, corrections included. Empty for a status, which reports cannot filter by. A
    batch has a total of its own, if it is the only filter."""
    if given["batch_id"]:
        if any(value for name, value in given.items() if name != "batch_id"):
            return ""
        return of_batch(await view.gateway.get(f"/admin/v1/batches/{quote(given['batch_id'], safe='')}/cost"))
    if given["status"]:
        return ""
    named = {name: value for name, value in given.items() if name not in ("status", "batch_id")}
    asked = {"key" if name == "key_id" else name: value for name, value in named.items()}
    return in_all((await _costs(view, asked))["total"])


async def _costs(view: View, asked: dict[str, str | None]) -> dict[str, Any]:
    bounds = view.period.bounds()
    return await view.gateway.get("/admin/v1/reports/costs", by="model", costs_alone=True, **bounds, **asked)


def of_batch(cost: Mapping[str, Any]) -> str:
    """`1,364 requests of this batch in all: $16.89; 3.67 M tokens in, 675 k out.`"""
    unpriced = cost["unpriced_requests"]
    spent = "no price is known" if cost["cost_usd"] is None else display.dollars(cost["cost_usd"])
    without = f", without {unpriced:,} whose price is unknown" if unpriced and cost["cost_usd"] is not None else ""
    return (
        f"{markup.counted(cost['requests'], 'request')} of this batch in all: {spent}{without}; "
        f"{display.tokens(cost['input_tokens'])} tokens in, {display.tokens(cost['output_tokens'])} out."
    )


def in_all(total: dict[str, Any]) -> str:
    """`1,364 requests in this time: $16.89, 3.67 M tokens in, 675 k out.`"""
    unpriced = total["unpriced_requests"]
    is_known = display.cost(total) != display.NO_PRICE
    without = f", without {unpriced:,} whose price is unknown" if unpriced and is_known else ""
    spent = display.spend(total) if is_known else "no price is known"
    return (
        f"{markup.counted(total['requests'], 'request')} in this time: {spent}{without}; "
        f"{display.tokens(total['input_tokens'])} tokens in, {display.tokens(total['output_tokens'])} out."
    )


def requests_table(entries: list[dict[str, Any]], *, order: str = "newest", has_years: bool = False) -> str:
    is_by_total = order == "total_time"
    moment = display.long_moment if has_years else display.short_moment
    is_any_corrected = any(_is_corrected(one) for one in entries)
    columns = [
        Column("Time"),
        Column("Model"),
        Column("Team"),
        Column("Cost", is_dollars=True),
        *([Column("Corrected", is_dollars=True, title="the cost with its corrections")] if is_any_corrected else []),
        Column("Rule"),
        Column("Status"),
        Column("Difficulty", is_number=True, title="0 easy, 1 hard"),
        Column("Input", is_number=True, title="tokens"),
        Column("Output", is_number=True, title="tokens"),
        Column("First token, s", is_number=True),
        *([Column("In all, s", is_number=True, title="from its arrival to its last byte")] if is_by_total else []),
        Column("Tok/s", is_number=True, title="decode: tokens per second of this stream"),
    ]
    return markup.table(
        columns,
        [
            [
                Cell(
                    moment(one["accepted_at_us"]),
                    href=f"request?id={one['request_id']}",
                    tone="be-nowrap",
                ),
                clipped(one["model"], note=_simulated(one), tone="muted" if one["is_simulated"] else ""),
                clipped(one["team"] or display.NO_NAME),
                one["cost_usd"] or "unknown",
                *([one["corrected_cost_usd"] or "unknown" if _is_corrected(one) else ""] if is_any_corrected else []),
                clipped(one["rule"]),
                Cell(one["status"], tone=TONES[one["status"]]),
                display.UNKNOWN if one["difficulty"] is None else f"{one['difficulty']:.2f}",
                display.count(one["input_tokens"]),
                display.count(one["output_tokens"]),
                display.bare_seconds(one["time_to_first_token_seconds"]),
                *([display.bare_seconds(one["total_seconds"])] if is_by_total else []),
                display.speed(one["decode_tokens_per_second"]).removesuffix(" tok/s"),
            ]
            for one in entries
        ],
        caption=f"Requests, {ORDERS[order]} first",
    )


def _is_corrected(one: dict[str, Any]) -> bool:
    return one["corrected_cost_usd"] != one["cost_usd"]


def clipped(name: str, *, note: str = "", tone: str = "") -> Cell:
    """Cut off to fit on one line; the tooltip has the full name."""
    return Cell(name, tone=f"be-clip {tone}".strip(), title=f"{name}: {note}" if note else name)


def _simulated(one: dict[str, Any]) -> str:
    return "simulated: no model answered" if one["is_simulated"] else ""


def _form(view: View, given: dict[str, str | None], order: str, known: Suggestions) -> str:
    fields = "".join(known.field(name, display.words(name), given[name]) for name in FILTERS if name != "status")
    statuses = {"": "any"} | {one: one for one in STATUSES}
    kept = "".join(f'<input type="hidden" name="{n}" value="{escape(v)}">' for n, v in view.period.address().items())
    selects = _select("status", "Status", statuses, given["status"] or "") + _select("order", "First", ORDERS, order)
    return markup.filters("requests", fields + selects + kept)


def _select(name: str, label: str, choices: Mapping[str, str], chosen: str) -> str:
    options = "".join(
        f'<option value="{value}"{" selected" if value == chosen else ""}>{escape(said)}</option>'
        for value, said in choices.items()
    )
    return f'<label class="be-field">{label}<select name="{name}">{options}</select></label>'
