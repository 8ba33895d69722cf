"""Monthly budgets: how much may be spent, how much is spent, and the forecast."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from html import escape
from typing import Any
from urllib.parse import urlencode

from dashboards import charts, display, markup
from dashboards.frame import Chart, View, html, panel
from dashboards.gateway_client import GatewayRefused
from dashboards.list_page import LONGEST_FIND, MOST, ListPage, page_number, pages_of, typed_find
from dashboards.markup import Cell, Column
from dashboards.pages.budget_forms import BUDGETS, BudgetForms, budget_name, team_names

FORECAST_DAYS = 30
NEAR, LIKELY = 0.8, 0.5
MOST_KEYS = 50
MOST_NOTED = 5
ORDERS: Mapping[str, Callable[[dict[str, Any]], Any]] = {
    "name": lambda one: budget_name(one).casefold(),
    "amount": lambda one: Decimal(one["month_usd"]),
    "spent": lambda one: Decimal(one["spent_usd"]),
    "used": lambda one: one["spent_share"],
    "chance": lambda one: one["outlook"]["probability_of_exceeding"] if one["outlook"] else -1.0,
}
"""What rows can be sorted by: figures with the largest first, names from A. A leading `-` reverses it."""
SPEND = "spend"
KEY_COLUMNS = [
    Column("Key"),
    Column("Team"),
    Column("Budget", is_number=True),
    Column("Spent in its window", is_dollars=True),
    Column("Used"),
]


async def build(view: View) -> None:
    """Monthly budgets, then daily spend with its forecast, then budgets of keys."""
    found = await view.gateway.get(BUDGETS)
    may_write, sees_all = view.session.may("budgets.write"), view.session.may("reports.read")
    month = datetime.now(UTC).strftime("%B %Y")
    note = "The last column says what happens once a budget is spent. Months are in UTC."
    with panel(f"Budgets for {month}", note):
        if sees_all:
            html(failing_note(await view.gateway.get("/admin/v1/notices")))
        asked = Asked(typed_find(view.query), page_number(view.query("page")), view.query("order") or "")
        listed = most_used(found["budgets"], asked)
        shown = listed.shown
        if typed_find(view.query) or listed.pages > 1:
            html(search(asked, listed))
        if shown:
            html(budgets_table(shown, asked))
            html(taken_over_note([budget_name(one) for one in shown], shown))
        elif typed_find(view.query):
            html(markup.message("No such budget", "No budget's name contains all of these words."))
        else:
            advice = "Set one below and this page says when it will be spent." if may_write else "Finance can set one."
            html(markup.message("No budgets yet", advice))
        if may_write:
            stopping = {(one["scope"], one["name"]) for one in found["budgets"] if one["stops"]}
            afterwards = f"/{replace(asked, page=listed.page).address()}"
            BudgetForms(view, shown, stopping, await team_names(view), afterwards)
    team = view.query("team") if sees_all else None  # a lead's is its own, whatever the address says
    whose = team or ("everything" if sees_all else "your team")
    spend = panel(f"Spend by day and the next {FORECAST_DAYS} days", f"US dollars, {whose}, UTC days.")
    with spend.props(f"id={SPEND}"):
        teams = [one["name"] for one in shown if one["scope"] == "team"]
        await _forecast(view, team, _teams(view, replace(asked, page=listed.page), teams) if sees_all else "")
    if view.session.may("keys.read", "team.read"):
        with panel("Budgets of keys", "A key that has spent its budget is refused until the next window."):
            await _keys(view)


@dataclass(frozen=True, slots=True)
class Asked:
    """What the address asks for: words in a budget's name, which page, and what to sort by (empty: see `most_used`)."""

    find: str = ""
    page: int = 1
    order: str = ""

    def address(self, *, team: str = "") -> str:
        page = str(self.page) if self.page > 1 else ""
        given = {"find": self.find, "page": page, "order": self.order, "team": team}
        query = urlencode({name: value for name, value in given.items() if value})
        return f"budgets?{query}" if query else "budgets"


def most_used(budgets: Sequence[dict[str, Any]], asked: Asked) -> ListPage:
    """A page of the budgets with every word of `find` in their name, in the order asked for; without one, if there are
    several pages, those that have used most come first. The last page, if `page` is beyond it."""
    words, column = asked.find.casefold().split(), asked.order.removeprefix("-")
    matching = [one for one in budgets if all(word in budget_name(one).casefold() for word in words)]
    page = min(asked.page, pages_of(len(matching)))
    if column in ORDERS:
        matching.sort(key=ORDERS[column], reverse=_is_falling(asked.order))
    elif len(matching) > MOST:
        matching.sort(key=ORDERS["used"], reverse=True)
    return ListPage(matching[(page - 1) * MOST : page * MOST], len(matching), page)


def _is_falling(order: str) -> bool:
    return (order.removeprefix("-") != "name") != order.startswith("-")


def search(asked: Asked, listed: ListPage) -> str:
    """The search form, and links to the pages before and after."""
    order = ", the ones that have used most first" if listed.pages > 1 and not asked.order else ""
    links = listed.links("Previous", "Next", lambda page: replace(asked, page=page).address())
    said = f'<p class="be-note be-hint">{listed.range_text}{order}.{links}</p>' if listed.shown else ""
    fields = (
        f'<label class="be-field">Team or project<input type="search" name="find" value="{escape(asked.find)}" '
        f'maxlength="{LONGEST_FIND}"></label><input type="hidden" name="order" value="{escape(asked.order)}">'
    )
    return markup.filters("budgets", fields, button="Search") + said


def failing_note(notices: dict[str, Any]) -> str:
    """Says that notices of budgets cannot be sent; empty if they can."""
    if notices["failing_since_us"] is None:
        return ""
    last, again = (display.moment(notices[f"{name}_at_us"]) for name in ("failed", "next_try"))
    began = display.moment(notices["failing_since_us"])
    said = f"Since {began}: {notices['problem']}. Last tried {last}, again about {again}."
    return markup.message("A budget notice is waiting to be sent", said, tone="bad")


def budgets_table(rows: Sequence[dict[str, Any]], asked: Asked) -> str:
    def sortable(column: Column, name: str) -> Column:
        is_now = asked.order.removeprefix("-") == name
        order = f"-{name}" if asked.order == name else name
        sort = ("descending" if _is_falling(asked.order) else "ascending") if is_now else None
        return replace(column, href=Asked(asked.find, order=order).address(), sort=sort)

    columns = [
        sortable(Column("Budget"), "name"),
        sortable(Column("A\N{NO-BREAK SPACE}month", is_dollars=True), "amount"),
        sortable(Column("Spent so far", is_dollars=True), "spent"),
        sortable(Column("Used"), "used"),
        Column("Month will come to", is_number=True, title="5 to 95 % of simulated months"),
        sortable(Column("Chance of exceeding", is_number=True), "chance"),
        Column("Runs out on", title="the first day on which it is expected to be spent"),
        Column("Once spent", title="A warning, or 429 for every further request until the month ends"),
    ]
    outlooks = [one["outlook"] or {"low_usd": display.UNKNOWN, "high_usd": display.UNKNOWN} for one in rows]
    spans = display.dollar_ranges([(one["low_usd"], one["high_usd"]) for one in outlooks])
    body = [_row(one, span) for one, span in zip(rows, spans, strict=True)]
    return markup.table(columns, body, caption="Monthly budgets")


def _row(one: dict[str, Any], span: str) -> list[Cell | str]:
    outlook = one["outlook"]
    return [
        Cell(budget_name(one), href=spending_link(one), tone="be-name"),
        one["month_usd"],
        spent(one),
        gauge(one["spent_share"]),
        Cell(span, title="" if outlook is None else f"expected {display.dollars(outlook['expected_usd'])}"),
        display.UNKNOWN if outlook is None else _chance(outlook["probability_of_exceeding"]),
        _day(outlook),
        _end(one),
    ]


def spent(one: dict[str, Any]) -> Cell:
    """The tooltip names the part that was taken over from LiteLLM, which is in no report."""
    if not float(one["taken_over_usd"]):
        return Cell(one["spent_usd"])
    there = display.dollars(one["taken_over_usd"])
    return Cell(one["spent_usd"], title=f"of it {there} taken over from LiteLLM")


def taken_over_note(names: Sequence[str], rows: Sequence[dict[str, Any]]) -> str:
    """Why more is spent than the reports show; empty if it is not."""
    found = [
        f"{display.dollars(one['taken_over_usd'])} of {name}"
        for name, one in zip(names, rows, strict=True)
        if float(one["taken_over_usd"])
    ]
    if not found:
        return ""
    more = len(found) - MOST_NOTED
    said = ", ".join(found[:MOST_NOTED]) + (f" and of {more} more" if more > 0 else "")
    return (
        f'<p class="be-note be-hint">Of what is spent, taken over from LiteLLM: {escape(said)}. It counts until the '
        "window ends, and is in no report.</p>"
    )


def _end(one: dict[str, Any]) -> Cell:
    if not one["keys"]:
        return Cell("nothing: it has no key", tone="bad be-nowrap", title=f"Is this the {one['scope']}'s name?")
    return Cell("a refusal", tone="be-nowrap") if one["stops"] else Cell("a warning", tone="muted be-nowrap")


def gauge(share: float) -> Cell:
    """A bar and its number; red once all is used."""
    tone = "bad" if share >= 1 else "warn" if share >= NEAR else "good"
    return Cell(display.share(share, places=0), tone=tone, bar=min(share, 1.0))


def spending_link(one: dict[str, Any]) -> str:
    """The month so far of the budget's scope, in the explorer."""
    whose = {"by": "team"} if one["scope"] == "all" else {"by": "model", one["scope"]: one["name"]}
    return f"explorer?{urlencode({**whose, 'period': 'month'})}"


def _chance(share: float) -> Cell:
    return Cell(display.share(share, places=0), tone="bad" if share >= LIKELY else "")


def _day(outlook: dict[str, Any] | None) -> Cell | str:
    if outlook is None:
        return Cell("not enough data", tone="muted")
    if outlook["runs_out"] is None:
        return Cell("not this month", tone="good be-nowrap")
    return Cell(display.day(outlook["runs_out"]), tone="bad be-nowrap")


async def _forecast(view: View, team: str | None, choice: str) -> None:
    html(choice)
    try:
        found = await view.gateway.get("/admin/v1/reports/forecast", days=FORECAST_DAYS, team=team)
    except GatewayRefused as refused:
        html(markup.message("No forecast yet", refused.message[:1].upper() + refused.message[1:]))
        return
    history = [(one["day"], float(one["cost_usd"])) for one in found["history"]]
    ahead = [(o["day"], float(o["low_usd"]), float(o["expected_usd"]), float(o["high_usd"])) for o in found["days"]]
    said = "Daily spend and its forecast; the line below has the sum, and its numbers can be opened"
    Chart(charts.forecast(history, ahead), said, size="tall", numbers=lambda: days_table(found))
    total = [display.dollars(found[f"total_{name}_usd"]) for name in ("low", "expected", "high")]
    html(
        f'<p class="be-note be-hint">The next {FORECAST_DAYS} days: {total[1]}, from {total[0]} to {total[2]} in nine '
        f"of ten simulations. Method: {escape(found['method'])}, from {len(found['history'])} days. "
        f"{escape(found['caution'] or '')}</p>"
    )


def days_table(found: dict[str, Any]) -> str:
    """The values of the chart: past days, and days to come."""
    columns = [
        Column("Day, UTC"),
        Column("Spent", is_dollars=True),
        Column("Expected", is_dollars=True),
        Column("5 %", is_dollars=True),
        Column("95 %", is_dollars=True),
    ]
    spent = [[display.day(one["day"]), one["cost_usd"], None, None, None] for one in found["history"]]
    ahead = [
        [display.day(one["day"]), None, *(one[f"{name}_usd"] for name in ("expected", "low", "high"))]
        for one in found["days"]
    ]
    return markup.table(columns, [*spent, *ahead], caption="Spend by day and its forecast")


def _teams(view: View, asked: Asked, teams: list[str]) -> str:
    """Those on the page, and the one that is shown. The links lead to this part of the page."""
    chosen = view.query("team") or ""
    if not teams and not chosen:
        return ""
    shown = ""
    for name in dict.fromkeys(("", *teams, chosen)):
        current = ' aria-current="true"' if name == chosen else ""
        href = escape(f"{asked.address(team=name)}#{SPEND}")
        shown += f'<a href="{href}"{current}>{escape(name or "Everything")}</a>'
    return f'<div class="be-periods" role="group" aria-label="Team">{shown}</div>'


async def _keys(view: View) -> None:
    found = await view.gateway.get(f"{BUDGETS}/keys", limit=MOST_KEYS)
    if not found["keys"]:
        html(markup.message("No key has a budget", "An owner can give one on the page Keys."))
        return
    html(markup.table(KEY_COLUMNS, [_key_row(one) for one in found["keys"]], caption="Budgets of keys"))
    html(taken_over_note([f"the key {one['name']}" for one in found["keys"]], found["keys"]))
    if found["with_budget"] > MOST_KEYS:
        said = f"The {MOST_KEYS} that have used most, of {found['with_budget']:,} keys with a budget"
        html(f'<p class="be-note be-hint">{said}; the page Keys finds each.</p>')


def _key_row(one: dict[str, Any]) -> list[Cell | str]:
    per = f"{display.dollars(one['budget_usd'])} / {one['window']}"
    return [one["name"], one["team"] or display.NO_NAME, per, spent(one), gauge(one["spent_share"])]
