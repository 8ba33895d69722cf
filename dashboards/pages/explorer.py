"""Spend by any dimension, compared with the period before, down to the requests behind a row."""

from collections import Counter
from dataclasses import replace
from decimal import Decimal
from html import escape
from typing import Any

from dashboards import certainty, charts, display, markup
from dashboards.earlier import NOT_COMPARED, Compared, Earlier, change_cell, compared, earlier_of
from dashboards.frame import Chart, View, html, no_requests, panel
from dashboards.markup import Cell, Column
from dashboards.periods import Period, link, time_of
from dashboards.row_order import Order, next_order, parse_order
from dashboards.suggestions import Suggestions, load_suggestions
from dashboards.table_part import ROWS, TablePart, parse_part

COSTS = "/admin/v1/reports/costs"
LAST_ROW = 1_000_000
"""More rows than any report has."""
TIMES = ("hour", "day", "week", "month", "quarter")
DIMENSIONS = (
    *("model", "team", "project", "key", "end_user", "backend", "provider", "rule", "status", "operation", "tag"),
    *TIMES,
)
FILTERS = ("team", "project", "key", "end_user", "model", "backend", "rule", "tag")
MOST_BARS = 12
FIGURE_COLUMNS = (
    (Column("Spend", is_dollars=True), "spend"),
    (Column("Change", is_number=True, title="against the period before"), None),
    (Column("Requests", is_number=True), "requests"),
    (Column("Input", is_number=True, title="tokens"), "input"),
    (Column("Cached", is_number=True, title="share of the input"), "cached"),
    (Column("Output", is_number=True, title="tokens"), "output"),
    (Column("$ / M input", is_dollars=True), "input-price"),
    (Column("$ / M output", is_dollars=True), "output-price"),
    (Column("$ / request", is_dollars=True), "request-price"),
)
"""Each with its name in the address, if rows can be sorted by it."""
LISTABLE = frozenset({"model", "team", "project", "key", "end_user", "backend", "rule", "status", "tag", *TIMES})


async def build(view: View) -> None:
    """A form of plain links and fields; the exports have the same rows as the table."""
    by = view.query("by") or "model"
    then = view.query("then")
    order = view.query("order")
    given = {name: view.query(name) for name in FILTERS}
    wanted = f"{by},{then}" if then and then != by else by
    as_of = view.query("as_of")
    html(_form(view, by, then, {**given, "as_of": as_of, "order": order}, await load_suggestions(view)))
    chosen = parse_order(order, wanted.split(","))
    asked = {"by": wanted, "as_of": as_of, **given}
    found, part = await read_report(view, asked, chosen)
    gone = found["earlier"]["ceased"] if found["earlier"] else 0
    if found["groups"] == gone:
        html(
            markup.message("Nothing matches", "No request in this time has all of these properties.")
            if any(given.values())
            else no_requests(view, found["books_begin"])
        )
        return
    earlier = earlier_of(view.period, found["books_begin"])
    against, key_names = compared(found), labels(found["key_names"])
    if part.number == 1:  # further parts of the table come without it
        _spend_chart(view, found, _to_draw(found), found["groups"] - gone, key_names)
    if said := certainty.of_groups(found):
        html(said)
    if found["as_of"]:
        html(f'<div class="be-banner">{escape(_closed(found["as_of"]))}</div>')
    with panel("Every group", table_note(view, found["by"], earlier, gone)):
        html(cost_table(view, found, part, against, key_names))
        if part.last_number > 1:
            html(_other_parts(view, part))
        html(_downloads(view, wanted, {**given, "as_of": as_of}))


async def read_report(view: View, asked: dict[str, Any], chosen: Order | None) -> tuple[dict[str, Any], TablePart]:
    """The report, and the part of its rows that the address names, or the last one. The other groups are summed up in
    one row. Groups by time are all fetched, because the chart shows all of them, and have no such row."""
    before = view.period.before()
    query = {
        **asked,
        **view.period.bounds(),
        "costs_alone": True,
        "order": None if chosen is None else chosen.address(),
        "compare_since": before.since.isoformat(),
        "compare_until": before.until.isoformat(),
    }
    if _time_of(asked["by"]) is not None:
        found = await view.gateway.get(COSTS, **query)
        return found, parse_part(view.query("page"), found["groups"])
    part = parse_part(view.query("page"), LAST_ROW)
    some = {**query, "limit": ROWS, "dearest": MOST_BARS}
    found = await view.gateway.get(COSTS, **some, offset=part.shown.start)
    there = parse_part(view.query("page"), found["groups"])
    if there.number != part.number:
        found = await view.gateway.get(COSTS, **some, offset=there.shown.start)
    return found, there


def _to_draw(found: dict[str, Any]) -> list[dict[str, Any]]:
    """The most expensive groups, whatever the rows' order; all groups if they are by time."""
    if _time_of(",".join(found["by"])) is None:
        return found["dearest"]
    return [row for row in found["rows"] if row["requests"] or Decimal(row["cost_usd"])]


def _time_of(by: str) -> str | None:
    """The dimension that is a time, if any."""
    return next((name for name in by.split(",") if name in TIMES), None)


def _spend_chart(
    view: View, found: dict[str, Any], rows: list[dict[str, Any]], groups: int, key_names: dict[str, str]
) -> None:
    """A chart of `rows`, which are all or the largest of `groups` groups."""
    by = found["by"]
    time = _time_of(",".join(by))
    most = f", the {MOST_BARS} largest of {groups:,} groups" if groups > MOST_BARS and time is None else ""
    with panel(f"Spend by {' and '.join(by).replace('_', ' ')}", f"US dollars, {view.period.phrase}{most}."):
        said = "Spend by group; the table below has every number"
        if not any(float(row["cost_usd"]) for row in rows):
            html(certainty.nothing_spent(found["total"]))
        elif (over_time := points_over_time(rows, key_names)) is not None:
            Chart(charts.stacked_bars(over_time, each=time or "day"), said)
        else:
            _lying_bars(rows[:MOST_BARS], key_names, said)


def _lying_bars(rows: list[dict[str, Any]], key_names: dict[str, str], said: str) -> None:
    names = [" · ".join(named(n, v, key_names) for n, v in row["group"].items()) for row in rows]
    size = "tall" if len(rows) > 10 else "short" if len(rows) < 4 else ""
    Chart(charts.rows(names, [float(row["cost_usd"]) for row in rows]), said, size=size)


def points_over_time(rows: list[dict[str, Any]], key_names: dict[str, str]) -> list[tuple[str, str, float]] | None:
    """(start, group of the other dimension, dollars) if the rows are grouped by time; else None."""
    time = next((name for name in rows[0]["group"] if name in TIMES), None)
    if time is None:
        return None

    def point(row: dict[str, Any]) -> tuple[str, str, float]:
        others = [named(name, value, key_names) for name, value in row["group"].items() if name != time]
        start = time_of(time, row["group"][time]).since
        return start.isoformat(), others[0] if others else "spend", float(row["cost_usd"])

    return [point(row) for row in rows]


def _closed(as_of: str) -> str:
    when = display.group_time("hour", as_of)
    return (
        f"Corrections booked from {when} UTC on are left out. Requests that a gateway shipped later than that are in."
    )


def table_note(view: View, by: list[str], earlier: Earlier, gone: int) -> str:
    """How the table's figures add up, and what they are compared with."""
    adds_up = (
        "A request with several tags is in the row of each, so the rows add up to more than the total."
        if "tag" in by
        else certainty.ADDS_UP
    )
    ceased = f" {markup.counted(gone, 'group')} of that period had no requests in this one." if gone else ""
    whose = "change of the total" if set(TIMES) & set(by) else "change"
    before = display.period(**earlier.period.bounds())
    against = (
        f"The {whose} is against {before}; pointing at it shows what was spent then."
        if earlier.is_whole
        else earlier.why_not()
    )
    is_list = _may_list(view) and LISTABLE.issuperset(by)
    leads = "Click a name for its requests, or a heading" if is_list else "Click a heading"
    return f"{against}{ceased} {leads} to sort by it. {adds_up}"


def _may_list(view: View) -> bool:
    return view.session.may("entries.read", "team.read")


def _downloads(view: View, by: str, given: dict[str, str | None]) -> str:
    """All rows of the table with every digit; and FOCUS of the whole period, for finance's own tools."""

    def links(what: str, report: str) -> str:
        return markup.downloads(what, lambda form: view.link(f"/export/{report}.{form}", by=by, **given))

    whole = links("FOCUS 1.3 of this time", "focus") if view.session.may("reports.read") else ""
    return f'<div class="be-actions be-downloads">{links("These rows", "costs")}{whole}</div>'


def labels(key_names: dict[str, str]) -> dict[str, str]:
    """Names of keys by id; a name that several keys share is followed by the id."""
    times = Counter(key_names.values())
    return {number: name if times[name] == 1 else f"{name} ({number})" for number, name in key_names.items()}


def named(dimension: str, value: str | None, key_names: dict[str, str]) -> str:
    """The label of a group: a key by its name, a time as people write it."""
    if value is None or (dimension == "key" and not value):
        return display.NO_NAME
    return display.group_time(dimension, value) if dimension in TIMES and value else key_names.get(value, value)


def cost_table(view: View, found: dict[str, Any], part: TablePart, before: Compared, key_names: dict[str, str]) -> str:
    columns = [
        *(_sortable(view, found["by"], Column(display.words(name)), name) for name in found["by"]),
        *(_sortable(view, found["by"], column, name) for column, name in FIGURE_COLUMNS),
    ]
    rows = found["rows"] if _time_of(",".join(found["by"])) is None else found["rows"][part.shown]
    body = [_row(view, row, before.change(row), key_names) for row in rows]
    if found["others"]:
        count = found["groups"] - len(rows)
        body.append(_sum_row(view, found, "others", before.others, f"{markup.counted(count, 'other group')}"))
    return markup.table(
        columns, [*body, _sum_row(view, found, "total", before.total, "Total")], caption="Cost by group"
    )


def _sum_row(view: View, found: dict[str, Any], of: str, before: str | None, said: str) -> list[Cell | str | None]:
    whole = {**found[of], "group": {}}
    figures = _row(view, whole, change_cell(display.cost(whole), before) if before is not None else NOT_COMPARED, {})
    return [Cell(said, tone="be-total" if of == "total" else ""), *[""] * (len(found["by"]) - 1), *figures]


def _other_parts(view: View, part: TablePart) -> str:
    """Links to the rows before and after those shown, in the same order and with the same filters."""
    said = f"Groups {part.phrase}; the total is of all, and so are the files."
    kept = {**_kept(view), "order": view.query("order")}
    links = "".join(
        f'<a href="{escape(view.link("/explorer", **kept, page=page))}">{name}</a>' for name, page in part.neighbours()
    )
    return f'<p class="be-note be-hint">{said}</p><nav class="be-actions" aria-label="Further groups">{links}</nav>'


def _kept(view: View) -> dict[str, str | None]:
    """The query parameters that stay the same in another order or part of the rows."""
    return {name: view.query(name) for name in ("by", "then", "as_of", *FILTERS)}


def _sortable(view: View, by: list[str], column: Column, name: str | None) -> Column:
    """The column with a heading that links to the page sorted by it."""
    if name is None:
        return column
    now = parse_order(view.query("order"), by) or Order(by[0] if set(TIMES) & set(by) else "spend")
    sort = None if now.column != name else "descending" if now.is_falling else "ascending"
    return replace(column, href=view.link("/explorer", **_kept(view), order=next_order(name, now).address()), sort=sort)


def requests_of(period: Period, group: dict[str, str | None], given: dict[str, str | None]) -> str | None:
    """The list of a group's requests under the given filters and within the period. None if the list cannot be filtered
    by this group."""
    wanted = {"key_id" if name == "key" else name: value for name, value in given.items()}
    for name, value in group.items():
        if name not in LISTABLE or not value:
            return None
        if name in TIMES:
            period = time_of(name, value).within(period)
        else:
            wanted["key_id" if name == "key" else name] = value
    return link("/requests", period, **wanted)


def _row(view: View, row: dict[str, Any], change: Cell, key_names: dict[str, str]) -> list[Cell | str | None]:
    group: dict[str, str | None] = row["group"]
    given = {name: view.query(name) for name in FILTERS}
    may_see = row["requests"] and _may_list(view)
    href = requests_of(view.period, group, given) if may_see else None
    cached = row["cached_input_tokens"] / row["input_tokens"] if row["input_tokens"] else None
    return [
        *(
            Cell(
                display.hour(value)
                if name == "hour" and value and view.period.is_of_one_year
                else named(name, value, key_names),
                href=href if i == 0 else None,
                tone="be-nowrap" if name in TIMES else markup.NAME,
                title=(value or "") if value in key_names else "",
            )
            for i, (name, value) in enumerate(group.items())
        ),
        display.cost(row),
        change,
        display.count(row["requests"]),
        display.tokens(row["input_tokens"]),
        display.share(cached, places=0),
        display.tokens(row["output_tokens"]),
        row["input_usd_per_mtok"],
        row["output_usd_per_mtok"],
        row["cost_per_request_usd"],
    ]


def _form(view: View, by: str, then: str | None, given: dict[str, str | None], known: Suggestions) -> str:
    def select(name: str, label: str, chosen: str | None, *, empty: str | None) -> str:
        options = [f'<option value="">{escape(empty)}</option>'] if empty is not None else []
        for one in DIMENSIONS:
            mark = " selected" if one == chosen else ""
            options.append(f'<option value="{one}"{mark}>{one.replace("_", " ")}</option>')
        return f'<label class="be-field">{label}<select name="{name}">{"".join(options)}</select></label>'

    fields = "".join(known.field(name, f"{display.words(name)} is", given[name]) for name in FILTERS)
    closed = escape(given["as_of"] or "")
    fields += (
        '<label class="be-field" title="Leaves out corrections booked from 00:00 UTC of that day on">As closed on'
        f'<input type="date" name="as_of" value="{closed}"></label>'
    )
    hidden = view.period.address() | ({"order": given["order"]} if given["order"] else {})
    kept = "".join(f'<input type="hidden" name="{n}" value="{escape(v)}">' for n, v in hidden.items())
    groups = select("by", "Group by", by, empty=None) + select("then", "and by", then, empty="nothing else")
    return markup.filters("explorer", groups + fields + kept)
