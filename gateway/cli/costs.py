"""`breakeven costs`: what was spent, by up to three dimensions, with unit costs and the mix they blend."""

import sys
from decimal import Decimal
from zoneinfo import ZoneInfo

import typer
from rich.console import Console
from rich.table import Column, Table

from gateway.cli.cost_filters import NO_NAME, filters, why_nothing, with_key_id
from gateway.cli.options import AsJson, AsOf, Since, TimeZone, Until, Where, read
from gateway.cli.show_table import show_table
from gateway.cli.state import State, ask
from gateway.money import show_usd
from gateway.reports.dimensions import DIMENSIONS
from gateway.reports.files import costs_file
from gateway.reports.tables import to_csv
from gateway.reports.views import CostQuery, CostRow, CostTable

COST_PLACES = 6


def command(
    by: str = typer.Option("model", help=f"One to three of {', '.join(DIMENSIONS)}; comma separated."),
    since: Since = None,
    until: Until = None,
    time_zone: TimeZone = None,
    as_of: AsOf = None,
    where: Where = None,
    as_json: AsJson = False,
    as_csv: bool = typer.Option(False, "--csv", help="Print CSV, the total left out."),
) -> None:  # fmt: skip
    """Show what was spent. Dollars are exact; prices per million tokens are empty where there were no tokens. Requests
    without a known price are in no sum."""
    query = read(CostQuery, by=by, since=since, until=until, time_zone=time_zone, as_of=as_of, **filters(where))
    table, nothing = ask(lambda state: _ask(state, query))
    if as_json:
        print(table.model_dump_json(indent=2))
    elif as_csv:
        sys.stdout.write(to_csv(costs_file(table)))
    else:
        console = Console(highlight=False)
        show_table(shown(table))
        for sentence in sentences(table):
            console.print(sentence)
    for sentence in nothing:
        print(sentence, file=sys.stderr)


async def _ask(state: State, query: CostQuery) -> tuple[CostTable, list[str]]:
    books = (await state.report_services()).books
    query = await with_key_id(state, query)
    table = await books.costs(query)
    return table, await why_nothing(books, query, table)


def shown(table: CostTable) -> Table:
    zone = ZoneInfo(table.time_zone)
    since, until = table.since.astimezone(zone), table.until.astimezone(zone)
    period = f"{since:%Y-%m-%d %H:%M} to {until:%Y-%m-%d %H:%M} {table.time_zone}"
    if table.as_of is not None:
        period += f", without corrections from {table.as_of.astimezone(zone):%Y-%m-%d %H:%M} on"
    drawn = Table(
        *(Column(name, no_wrap=True, overflow="fold", min_width=10) for name in table.by),
        title=f"Costs, {period}",
        box=None,
        show_footer=True,
    )
    for name in (
        "requests",
        "cost $",
        "list $",
        "$/M in",
        "$/M out",
        "$/M blended",
        "in:out",
        "$/request",
        "TTFT p50 s",
        "tok/s p50",
    ):
        drawn.add_column(name, justify="right", no_wrap=True)
    drawn.columns[0].footer = "total"
    for column, text in zip(drawn.columns[len(table.by) :], cells(table.total), strict=True):
        column.footer = text
    for row in table.rows:
        drawn.add_row(*(named(table, name, row.group[name]) for name in table.by), *cells(row))
    notes = [
        f"{count} {what}"
        for count, what in (
            (
                table.total.unpriced_requests,
                "without a known price (`breakeven prices reprice` adds them as corrections once it is known, but for "
                "those that a process left behind when it died or that had an unanswered attempt of unknown cost)",
            ),
            (table.total.estimated_requests, "with estimated usage"),
            (
                table.total.simulated_requests,
                f"simulated, of which {show_usd(table.total.simulated_usd)} is at list prices and on no bill",
            ),
        )
        if count
    ]
    drawn.caption = f"Requests: {'; '.join(notes)}" if notes else None
    return drawn


def named(table: CostTable, dimension: str, value: str | None) -> str:
    """A group's value; for a key its name, plus its id if another key has the same name."""
    name = table.key_names.get(value or "") if dimension == "key" else None
    if name is None:
        return value or NO_NAME
    return name if [*table.key_names.values()].count(name) == 1 else f"{name} ({value})"


def sentences(table: CostTable) -> list[str]:
    """The lines below the groups: spend without an owner, shadow calls, idle GPUs, savings."""
    found = [text for text in (how_rows_add_up(table),) if text]
    found += [text for text in (how_certain(table.total),) if text]
    if any(Decimal(row.corrections_usd) for row in (table.total, *table.rows)):
        corrected = show_usd(table.total.corrections_usd)
        found.append(f"Corrections, {corrected} in all, are in cost $, $/M blended and $/request, not in list $.")
    if table.unallocated_share is not None:
        share = f"{table.unallocated_share:.1%} of the total"
        found.append(f"Unallocated: {show_usd(table.unallocated_usd or '0')}, {share}.")
    if not table.total.simulated_requests and Decimal(usd := table.total.simulated_usd):
        found.append(f"Attempts at simulated models, included above at list prices and on no bill: {show_usd(usd)}.")
    for what, usd in (("Shadow calls", table.shadow_usd), ("Judging their answers", table.judge_usd)):
        if Decimal(usd):
            found.append(f"{what}, included above: {show_usd(usd)}.")
    if table.rows and "end_user" in table.by and all(row.group["end_user"] is None for row in table.rows):
        found.append("No end user is on record: `record_end_users: true` in breakeven.yaml records them from then on.")
    if (each := table.total.cost_per_successful_request_usd) is not None:
        found.append(f"A successful request cost {show_usd(each)}.")
    if table.idle is not None:
        idle, whole = Decimal(table.idle.idle_usd), Decimal(table.idle.idle_usd) + Decimal(table.total.cost_usd)
        found.append(
            f"Your own GPUs: {show_usd(table.idle.rent_usd)} of rent, {show_usd(idle)} of it idle and in no row above; "
            f"with that the period cost {show_usd(whole)}."
        )
    if table.total.input_tokens and Decimal(table.total.gpu_seconds):
        found.append("$/M in and $/M out are of requests that are charged by the token; GPU time is in $/M blended.")
    if table.total.unpriced_requests:
        found.append("Where only some requests of a model have a known price, $/M takes all of them for equally long.")
    if by_caches := Decimal(table.saved_by_prompt_caches_usd):
        what = "less than without" if by_caches > 0 else "more than without: more was written to them than read back"
        found.append(f"Prompt caches of providers: {show_usd(abs(by_caches))} {what}.")
    for one in table.savings:
        saved = Decimal(one.saved_usd)
        what = f"{show_usd(abs(saved))} {'less' if saved >= 0 else 'more'}"
        would = show_usd(one.would_have_cost_usd)
        idle_too = "" if table.idle is None else ", idle GPUs included"
        found.append(
            f"All that chat models answered would cost {would} at {one.against}'s price of today: "
            f"this was {what}{idle_too}."
        )
    return found


def how_rows_add_up(table: CostTable) -> str | None:
    """If the rows as shown do not add up to the total as shown: why, and what they add up to."""
    if "tag" in table.by:
        return "A request with several tags is in the row of each: the rows add up to more than the total."
    shown = sum(Decimal(rounded(row.cost_usd, COST_PLACES)) for row in table.rows)
    if shown == Decimal(rounded(table.total.cost_usd, COST_PLACES)):
        return None
    return f"Each figure is rounded for itself: as shown, rows add up to {shown}; --json and --csv have every digit."


def how_certain(total: CostRow) -> str | None:
    """The bounds of the total if counts were estimated or prices unknown; None if all is exact."""
    lower, upper = total.cost_lower_usd, total.cost_upper_usd
    if lower == upper:
        return None
    most = "; some of them have no upper bound" if upper is None else f" and at most {show_usd(upper)}"
    corrections = Decimal(total.corrections_usd)
    without = f", corrections of {show_usd(corrections)} left out" if corrections else ""
    return f"With what is estimated or has no known price it was at least {show_usd(lower)}{most}{without}."


def cells(row: CostRow) -> list[str]:
    """Shows the mix next to the blended price: one means nothing without the other."""
    speeds = (row.time_to_first_token_p50_seconds, row.decode_tokens_per_second_p50)
    prices = (row.input_usd_per_mtok, row.output_usd_per_mtok, row.blended_usd_per_mtok)
    return [
        str(row.requests),
        "unknown" if is_unknown(row) else rounded(row.cost_usd, COST_PLACES),
        rounded(row.list_cost_usd, COST_PLACES),
        *(rounded(price, 4) for price in prices),
        f"{row.input_tokens / row.output_tokens:.1f}:1" if row.output_tokens else "",
        rounded(row.cost_per_request_usd, 6),
        *("" if speed is None else f"{speed:.3g}" for speed in speeds),
    ]


def is_unknown(row: CostRow) -> bool:
    """No request of the group has a known price: its sum is empty, and not $0."""
    return bool(row.unpriced_requests) and row.unpriced_requests == row.requests and not Decimal(row.cost_usd)


def rounded(text: str | None, places: int) -> str:
    """For display; --json and --csv keep every digit."""
    return "" if text is None else f"{Decimal(text):.{places}f}"
