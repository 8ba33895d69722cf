"""Compares a provider's export with this deployment's ledger, and books differences. Knows stores' protocols only."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from typing import Protocol

from gateway.errors import InvalidRequest
from gateway.instants import start_of_day_us
from gateway.money import format_usd, known_usd
from gateway.reports.charged import Charged, UnknownExport, added_up, model_key
from gateway.reports.invoices import parse_export
from gateway.reports.meter_names import MeterNames
from gateway.reports.reconcile_views import ReconcileBody, ReconciledRow, ReconciliationView
from gateway.reports.reconciliation import Ours, Reconciled, Why, agrees, reconcile
from gateway.stores import Difference
from gateway.sums import ReportStore, Sums, SumsQuery


class Differences(Protocol):
    """Where differences are booked."""

    async def book_difference(self, difference: Difference, *, author: str) -> bool:
        """False if it is already booked, or the day has no request to attach it to."""
        ...


@dataclass(frozen=True, slots=True)
class Compared:
    """One export compared with the books; `names` are a model's spellings in the books of that day."""

    provider: str
    first_day: date
    last_day: date
    rows: tuple[Reconciled, ...]
    names: dict[tuple[date, str], tuple[str, ...]]
    left_out: Mapping[str, int | None]


class ReconcileService:
    """Answers `/reports/reconcile` and `breakeven reconcile`."""

    def __init__(self, store: ReportStore, priced_as: Callable[[str], Mapping[str, str]] = lambda _: {}) -> None:
        """`priced_as` gives, for a provider's models with names of your own, their names in the price list."""
        self._store = store
        self._priced_as = priced_as

    async def reconcile(self, body: ReconcileBody) -> ReconciliationView:
        return view_of(await self.compare(body.provider, body.export, body.since, body.until, named=body.named))

    async def compare(
        self,
        provider: str,
        export: str | Sequence[str],
        since: date | None = None,
        until: date | None = None,
        *,
        named: Mapping[str, str] | None = None,
    ) -> Compared:
        """Compares the days from `since` to before `until`, by default those that the export covers, which may be in
        several files. `named` says which of our models their names mean. Raises InvalidRequest."""
        texts = (export,) if isinstance(export, str) else export
        try:
            theirs = await asyncio.to_thread(parse_export, *texts)
        except UnknownExport as error:
            raise InvalidRequest(f"This export cannot be read: {error}.", param="export") from error
        if not theirs.lines:
            raise InvalidRequest("The export has no day with usage or costs.", param="export")
        first, end = since or theirs.days[0], until or theirs.days[-1] + timedelta(days=1)
        lines = [line for line in theirs.lines if first <= line.day < end]
        for line in theirs.lines:  # of a month that would look unbilled
            if (since is None and line.day < first) or (until is None and line.day >= end):
                raise InvalidRequest(
                    f"The bill has usage of {first} to {end - timedelta(days=1)}, and a refund or fee of {line.day}. "
                    "Say with `since` and `until` which days to compare; what is of other days is left out.",
                    param="since" if line.day < first else "until",
                )
        if not lines:  # all our models would look unbilled
            raise InvalidRequest("No line of the export is of the days from `since` to `until`.", param="since")
        other_days = sum(line.cost_pico_usd or 0 for line in theirs.lines if not first <= line.day < end)
        beside = {"other days": other_days} if other_days else {}
        period = (start_of_day_us(first), start_of_day_us(end))
        query = SumsQuery(*period, ("day", "upstream_model"), {"provider": provider, "is_simulated": "false"})
        sums, priced_as = await self._store.sums(query), self._priced_as(provider)
        rows, names = await asyncio.to_thread(_reconciled, sums, lines, priced_as, named or {})
        return Compared(provider, first, end - timedelta(days=1), rows, names, beside | dict(theirs.left_out))


def unbookable(compared: Compared) -> int:
    """Number of differences for days and models that are not in our books."""
    return sum((row.ours.day, row.ours.model) not in compared.names for row in compared.rows if row.difference_pico_usd)


def unnamed(compared: Compared) -> int:
    """Number of differences that may be one of their meters under another name, and are not booked."""
    return sum(row.why is Why.another_name for row in compared.rows)


async def book_differences(compared: Compared, books: Differences, *, reference: str, author: str) -> int:
    """Books differences as corrections spread over the day's groups, so that each month closes on the real charges."""
    booked = 0
    for row in compared.rows:
        names = compared.names.get((row.ours.day, row.ours.model))
        if not row.difference_pico_usd or names is None or row.why is Why.another_name:
            continue
        difference = Difference(
            since_us=start_of_day_us(row.ours.day),
            until_us=start_of_day_us(row.ours.day + timedelta(days=1)),
            provider=compared.provider,
            upstream_models=names,
            reference=f"{reference} {row.ours.day} {row.ours.model}",
            amount_pico_usd=row.difference_pico_usd,
            reason=row.why.value,
        )
        booked += await books.book_difference(difference, author=author)
    return booked


def view_of(compared: Compared) -> ReconciliationView:
    """The totals, and a row for every day and model."""
    rows = compared.rows
    ours = sum(row.ours.cost_pico_usd for row in rows)
    known = [row.theirs.cost_pico_usd for row in rows if row.theirs.cost_pico_usd is not None]
    theirs = sum(known) if known else None
    difference = None if theirs is None else theirs - ours
    return ReconciliationView(
        provider=compared.provider,
        first_day=compared.first_day,
        last_day=compared.last_day,
        our_usd=format_usd(ours),
        their_usd=known_usd(theirs),
        difference_usd=known_usd(difference),
        difference_share=None if not theirs or difference is None else difference / abs(theirs),
        agrees=None if theirs is None else agrees(ours, theirs),
        left_out_usd={what: known_usd(cost) for what, cost in compared.left_out.items()},
        rows=[_row(row) for row in rows],
    )


def _reconciled(
    sums: Sequence[Sums], lines: Sequence[Charged], priced_as: Mapping[str, str], named: Mapping[str, str]
) -> tuple[tuple[Reconciled, ...], dict[tuple[date, str], tuple[str, ...]]]:
    name_of = model_key
    if any(line.is_meter for line in lines):
        meters = MeterNames((row.group["upstream_model"] or "" for row in sums), priced_as)
        name_of = meters.of_ours
        lines = [replace(line, model=meters.of_meter(line.model)) if line.is_meter else line for line in lines]
    ours, names = _ours(sums, name_of)
    theirs = added_up(_renamed(lines, named, {row.model for row in ours}))
    return tuple(reconcile(ours, theirs)), names


def _renamed(lines: Sequence[Charged], named: Mapping[str, str], ours: set[str]) -> list[Charged]:
    keys = {model_key(theirs): model_key(mine) for theirs, mine in named.items()}
    for name in sorted(set(keys.values()) - ours):
        problem = f"no model of ours is called {name!r} on these days; they are {', '.join(sorted(ours)) or '(none)'}"
        raise InvalidRequest(f"{problem}.", param="named")
    there = {model_key(line.model) for line in lines}
    for name in named:
        if model_key(name) not in there:
            has = ", ".join(sorted(there - ours)) or "no name that we do not know"
            problem = f"nothing in the export is called {name!r} on these days; it has {has}"
            raise InvalidRequest(f"{problem}.", param="named")
    return [replace(line, model=keys.get(model_key(line.model), line.model)) for line in lines]


def _ours(
    sums: Sequence[Sums], name_of: Callable[[str], str]
) -> tuple[list[Ours], dict[tuple[date, str], tuple[str, ...]]]:
    """Our sums by day and canonical model name, for which several names may be in use."""
    groups: dict[tuple[date, str], list[Sums]] = {}
    for row in sums:
        key = date.fromisoformat(row.group["day"] or ""), name_of(row.group["upstream_model"] or "")
        groups.setdefault(key, []).append(row)
    names = {key: tuple(sorted({row.group["upstream_model"] or "" for row in rows})) for key, rows in groups.items()}
    return [_day(day, model, rows) for (day, model), rows in groups.items()], names


def _day(day: date, model: str, rows: Sequence[Sums]) -> Ours:
    corrections = sum(row.adjustment_pico_usd for row in rows)
    is_bounded = not any(row.unbounded_requests for row in rows)
    return Ours(
        day=day,
        model=model,
        requests=sum(row.requests for row in rows),
        input_tokens=sum(row.input_tokens for row in rows),
        output_tokens=sum(row.output_tokens for row in rows),
        cost_pico_usd=sum(row.corrected_cost_pico_usd for row in rows),
        lower_pico_usd=sum(row.lower_pico_usd for row in rows) + corrections,
        upper_pico_usd=sum(row.upper_pico_usd for row in rows) + corrections if is_bounded else None,
        unpriced_requests=sum(row.still_unpriced_requests for row in rows),
        estimated_requests=sum(row.estimated_requests for row in rows),
        web_searches=sum(row.web_searches for row in rows),
        file_searches=sum(row.file_searches for row in rows),
        other_tool_calls=sum(row.other_tool_calls for row in rows),
    )


def _row(row: Reconciled) -> ReconciledRow:
    return ReconciledRow(
        day=row.ours.day,
        model=row.ours.model,
        our_requests=row.ours.requests,
        our_unpriced_requests=row.ours.unpriced_requests,
        their_requests=row.theirs.requests,
        our_input_tokens=row.ours.input_tokens,
        their_input_tokens=row.theirs.input_tokens,
        our_output_tokens=row.ours.output_tokens,
        their_output_tokens=row.theirs.output_tokens,
        our_usd=format_usd(row.ours.cost_pico_usd),
        their_usd=known_usd(row.theirs.cost_pico_usd),
        difference_usd=known_usd(row.difference_pico_usd),
        likely_reason=row.why.value,
    )
