"""Requests that can wait: how far each batch is and what it has cost so far; some roles can cancel one."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from html import escape
from typing import Any

from nicegui import ui

from dashboards import display, markup
from dashboards.forms.problem import form_problem
from dashboards.frame import View, confirm, grid, html, panel, refusal
from dashboards.gateway_client import GatewayRefused, GatewayUnreachable
from dashboards.markup import Cell, Column
from dashboards.periods import Period, link

BATCHES = "/admin/v1/batches"
DAYS = 30
"""The period of a report that is asked for without one."""
MOST_UNDER_WAY, MOST_ENDED = 200, 50
REFRESH_SECONDS = 10.0
"""A batch takes minutes to hours."""
COSTS = (
    "Costs are of the answers only; click a batch for its total in the books, which includes failures, retries and "
    "corrections."
)
FOLLOW = "import(window.path_prefix + '/static/followed.js').then((followed) => followed.follow(getHtmlElement({id})))"
TONES = {"completed": "good", "failed": "bad", "expired": "bad", "cancelled": "muted", "cancelling": "warn"}
FIRST_BATCH = """\
# requests.jsonl, a request on each line:
{{"custom_id": "1", "method": "POST", "url": "/v1/chat/completions", "body": \
{{"model": "auto", "messages": [{{"role": "user", "content": "Say hello."}}]}}}}

curl {gateway}/v1/files -H "Authorization: Bearer $KEY" -F purpose=batch -F file=@requests.jsonl
curl {gateway}/v1/batches -H "Authorization: Bearer $KEY" -H "Content-Type: application/json" \\
  -d '{{"input_file_id": "FILE", "endpoint": "/v1/chat/completions", "completion_window": "24h"}}'"""
COLUMNS = (
    Column("Batch"),
    Column("Status"),
    Column("Done", title="answered or failed, of all of its requests"),
    Column("Failed", is_number=True),
    Column("Models", title="that gave its answers so far"),
    Column("Team"),
    Column("Key", title="that made it, and whose budget and rates apply"),
    Column("Answers cost", is_dollars=True, title="so far; the books also have retries and failures"),
    Column("Started"),
)


async def build(view: View) -> None:
    """Batches under way with what all have cost, then those that have ended; refreshed while one is under way."""
    listed = await _listed(view)
    if not listed.under_way and not listed.ended:
        html(no_batches(view))
        return
    with panel("Under way", f"Newest first, times in UTC. {COSTS}"):
        shown = html(under_way_text(listed))
        offer = _canceller(view) if view.session.may("batches.write") else None
    ended = html(ended_text(listed.ended))
    for one in (shown, ended):
        ui.run_javascript(FOLLOW.format(id=one.id))

    async def load_again() -> None:
        try:
            found = await _listed(view)
        except GatewayUnreachable as error:  # the timer asks again
            problem.set_content(form_problem(error))
            return
        except GatewayRefused as error:
            problem.set_content(refusal(view, error))
            timer.deactivate()
            return
        problem.set_content("")
        shown.set_content(under_way_text(found))
        ended.set_content(ended_text(found.ended))
        if offer is not None:
            offer(found.under_way)
        if not found.under_way:
            timer.deactivate()

    if offer is not None:
        offer(listed.under_way)
    problem = html("")
    timer = ui.timer(REFRESH_SECONDS, load_again, active=bool(listed.under_way), immediate=False)


@dataclass(frozen=True, slots=True)
class Listed:
    """The newest of both kinds, and the ledger's total of all batches."""

    under_way: Sequence[Mapping[str, Any]]
    ended: Sequence[Mapping[str, Any]]
    total: Mapping[str, Any]


async def _listed(view: View) -> Listed:
    under_way, ended, costs = await asyncio.gather(
        view.gateway.get(BATCHES, state="under_way", limit=MOST_UNDER_WAY),
        view.gateway.get(BATCHES, state="ended", limit=MOST_ENDED),
        view.gateway.get("/admin/v1/reports/costs", by="model", tag="batch", costs_alone=True),
    )
    return Listed(under_way["batches"], ended["batches"], costs["total"])


def under_way_text(listed: Listed) -> str:
    said = spent(listed.total) if listed.total["requests"] else ""
    if not listed.under_way:
        return said + markup.message("No batch is under way", "All have ended.")
    news = f"The list is refreshed every {REFRESH_SECONDS:.0f} seconds while a batch is under way"
    note = f'<p class="be-note be-hint" role="status">{news}: now {len(listed.under_way):,}.</p>'  # announced
    return said + batch_table(listed.under_way) + _hint(listed.under_way, MOST_UNDER_WAY) + note


def ended_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """A panel of its own; empty if none has ended."""
    if not rows:
        return ""
    note = f"Newest first, times in UTC. {COSTS} The answers are in files, which the key's team can read."
    table = batch_table(rows) + _hint(rows, MOST_ENDED)
    return f'<section class="be-panel"><h2>Ended</h2><p class="be-note">{escape(note)}</p>{table}</section>'


def _hint(rows: Sequence[Mapping[str, Any]], most: int) -> str:
    """Says that there may be more."""
    if len(rows) < most:
        return ""
    return f'<p class="be-note be-hint">The newest {most}; <code>breakeven batches list</code> shows more.</p>'


def no_batches(view: View) -> str:
    """How to send one."""
    return markup.message(
        "No batches yet",
        "Requests that nobody waits for can be sent in a file. They are sent to their model when it has room, and cost "
        "less if that is your own engine.",
    ) + (
        '<section class="be-panel"><h2>A first batch</h2><p class="be-note">Replace <code>$KEY</code> with an app\'s '
        "key, and <code>FILE</code> with the <code>id</code> that the first command returns. The batches of OpenAI's "
        "and Anthropic's clients work, too.</p>"
        f'<pre class="be-secret">{escape(FIRST_BATCH.format(gateway=view.gateway.url))}</pre></section>'
    )


def spent(total: Mapping[str, Any]) -> str:
    """The ledger's total of all batches, which includes retries and failed requests."""
    said = (
        f"{markup.counted(total['requests'], 'request')} of batches in {DAYS} days, as booked: {display.spend(total)}"
    )
    without = total["unpriced_requests"]
    said += f", without {without:,} whose price is unknown" if without else ""
    href = f"explorer?by=model&tag=batch&period={DAYS}d"
    return f'<p class="be-sum">{escape(markup.unbroken(said))}. <a href="{escape(href)}">By model</a></p>'


def batch_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """`rows` are all under way, or have all ended."""
    is_ended = rows[0]["ended_at_us"] is not None
    last = Column("Ended") if is_ended else Column("Ends by", title="requests not answered by then expire")
    cells = [
        [
            Cell(one["id"], href=requests_of(one), tone="be-clip", title=f"{one['id']}: {one['endpoint']}"),
            _status(one),
            done(one),
            Cell(display.count(one["failed"]), tone="bad" if one["failed"] else ""),
            ", ".join(one["models"]) or display.UNKNOWN,
            one["team"] or display.NO_NAME,
            Cell(one["key"] or one["key_id"], title=one["key_id"]),
            cost(one),
            _moment(one["created_at_us"]),
            _moment(one["ended_at_us"] if is_ended else one["deadline_us"]),
        ]
        for one in rows
    ]
    caption = "Batches that have ended" if is_ended else "Batches under way"
    return markup.table([*COLUMNS, last], cells, caption=caption)


def requests_of(one: Mapping[str, Any]) -> str:
    """The list of its requests, from the hour of its creation to an hour after its deadline."""
    made, end = (datetime.fromtimestamp(one[name] / 1e6, UTC) for name in ("created_at_us", "deadline_us"))
    since = made.replace(minute=0, second=0, microsecond=0)
    return link("/requests", Period("", since, end + timedelta(hours=1)), batch_id=one["id"])


def _status(one: Mapping[str, Any]) -> Cell:
    tone = f"be-nowrap {TONES.get(one['status'], '')}".strip()
    return Cell(one["status"].replace("_", " "), tone=tone, title=one["problem"] or "")


def done(one: Mapping[str, Any]) -> Cell:
    """A bar and its numbers; the total is not known before the batch's file was read."""
    if not one["total"]:
        return Cell(display.UNKNOWN, tone="muted")
    count, tone = one["completed"] + one["failed"], "warn" if one["failed"] else "good"
    share = count / one["total"]
    title = f"{display.share(share, places=0)}: {one['completed']:,} answered, {one['failed']:,} failed"
    return Cell(f"{count:,} of {one['total']:,}", tone=tone, title=title, bar=share)


def cost(one: Mapping[str, Any]) -> Cell:
    """If none of its answers has a price, the cost is unknown, not $0."""
    without = one["answers_without_price"]
    if not without:
        return Cell(one["cost_usd"])
    title = f"without {markup.counted(without, 'answer')} whose price is unknown"
    return Cell("unknown" if without == one["completed"] else one["cost_usd"], tone="warn", title=title)


def _moment(at_us: int) -> Cell:
    """To the minute; the tooltip has the full time."""
    return Cell(_minute(at_us), tone="be-nowrap", title=display.moment(at_us))


def _canceller(view: View) -> Callable[[Sequence[Mapping[str, Any]]], None]:
    """Controls to choose a batch and cancel it. Returns what sets the choices; without any, the controls are hidden."""
    listed: dict[str, str] = {}
    problem = html("")
    with grid("be-filters") as fields:
        chosen = ui.select(listed, label="Batch to cancel", with_input=True).props("dense outlined")
        chosen.style("min-width: 15rem")
        button = ui.button("Cancel").props("no-caps outline color=negative")

    async def cancel() -> None:
        try:
            await view.gateway.post(f"{BATCHES}/{chosen.value}/cancel")
        except (GatewayRefused, GatewayUnreachable) as error:
            problem.set_content(refusal(view, error))
            return
        ui.navigate.to("/batches")

    def ask_first() -> None:
        if chosen.value is None:
            problem.set_content(form_problem(ValueError("Choose the batch to cancel.")))
            return
        asked = f"Cancel {listed[str(chosen.value)]}? Its remaining requests are not sent; its answers so far are kept."
        confirm(asked, "Cancel the batch", cancel)

    def offer(under_way: Sequence[Mapping[str, Any]]) -> None:
        now = {one["id"]: _label(one) for one in under_way if one["status"] != "cancelling"}
        if now != listed:  # otherwise a list that somebody has open would close
            listed.clear()
            listed.update(now)
            chosen.set_options(now)
        fields.set_visibility(bool(listed))

    button.on_click(ask_first)
    return offer


def _label(one: Mapping[str, Any]) -> str:
    return f"{one['key'] or one['key_id']}, {_minute(one['created_at_us'])}: {one['id']}"


def _minute(at_us: int) -> str:
    return display.short_moment(at_us).rpartition(":")[0]
