"""Every report as a table for a file, with the same figures as the report itself."""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import replace

from gateway.instants import DAY_US, microseconds, moment_of
from gateway.reports.books import Books
from gateway.reports.focus import Capacity, Period, focus_table, month_of
from gateway.reports.focus_columns import COLUMNS, GROUP_BY
from gateway.reports.forecast_views import Anomaly, DailyQuery, ForecastPoint, ForecastQuery, Forecasts
from gateway.reports.gpu_books import Bounds
from gateway.reports.model_tables import table_of
from gateway.reports.tables import Column, PagedTable, ReportTable
from gateway.reports.views import (
    BooksQuery,
    BreakEvenQuery,
    CostQuery,
    CostRow,
    CostTable,
    CurvePoint,
    GpuReports,
    PeriodQuery,
    Savings,
    UtilisationPoint,
)
from gateway.sums import BookStore, ReportStore, Sums, SumsQuery


class ReportFiles:
    """See Files in gateway/api/admin/exports.py."""

    def __init__(self, store: BookStore, books: Books, gpus: GpuReports, forecasts: Forecasts) -> None:
        self._store = store
        self._books = books
        self._gpus = gpus
        self._forecasts = forecasts

    async def focus(self, query: BooksQuery) -> PagedTable:
        """FOCUS 1.3, one page per UTC day: a year of many keys is more rows than a process should hold."""
        bounds, gpus, as_of_us = self._books.bounds(query), self._books.gpus, query.as_of_us()
        month_began, _ = month_of(moment_of(self._books.now_us()))
        await self._store.await_corrections(microseconds(month_began) if as_of_us is None else as_of_us)
        capacity, rented = await gpus.capacity(bounds), await gpus.rented_in(bounds)
        return PagedTable(COLUMNS, self._focus_days(bounds, as_of_us, capacity, rented))

    async def _focus_days(
        self, bounds: Bounds, as_of_us: int | None, capacity: Sequence[Capacity], rented: Collection[str]
    ) -> AsyncIterator[ReportTable]:
        period = Period(moment_of(bounds.since_us), moment_of(bounds.until_us))
        for day in await self._days(bounds, capacity):
            since_us, until_us = max(bounds.since_us, day * DAY_US), min(bounds.until_us, (day + 1) * DAY_US)
            asked = SumsQuery(since_us, until_us, GROUP_BY, as_of_us=as_of_us)
            async with self._books.at_one_moment() as books:
                store, paid = books.store, await books.gpus.capacity(Bounds(since_us, until_us))
                groups = await store.sums(asked)
                at_month_end = await self._at_month_end(store, asked, groups)
                names = await store.key_names({key_id for group in groups if (key_id := group.group["key"])})
            before = {one.backend: one for one in capacity if one.day == _label(day)}
            now = {one.backend: one.since(before.get(one.backend, one)) for one in paid}
            # Off the event loop, which also serves answers.
            yield await asyncio.to_thread(
                focus_table, groups, [*(before | now).values()], period, names, rented, at_month_end
            )

    async def _at_month_end(
        self, store: ReportStore, asked: SumsQuery, groups: Sequence[Sums]
    ) -> Sequence[Sums] | None:
        """A day's groups without corrections made after its month; None if there can be none."""
        end_us = microseconds(month_of(moment_of(asked.since_us))[1])
        is_over = end_us <= min(self._books.now_us(), asked.as_of_us or end_us)
        if not is_over or not any(group.adjusted_requests for group in groups):
            return None
        return await store.sums(replace(asked, as_of_us=end_us))

    async def _days(self, bounds: Bounds, capacity: Sequence[Capacity]) -> range:
        """Days since the epoch, within the period, that may have bookings or GPUs to pay for."""
        booked_us = await self._store.first_and_last_us()
        if booked_us is None:
            return range(0)
        first, end = max(bounds.since_us, booked_us[0]), min(bounds.until_us, booked_us[1])
        last_paid = max((one.day for one in capacity), default="")
        end_day = -(-end // DAY_US)
        while _label(end_day) <= last_paid:  # GPUs are paid for even after the last request
            end_day += 1
        return range(first // DAY_US, end_day)

    async def costs(self, query: CostQuery) -> ReportTable:
        return await asyncio.to_thread(costs_file, await self._books.costs(query))

    async def savings(self, query: CostQuery) -> ReportTable:
        return table_of(Savings, (await self._books.costs(query)).savings)

    async def utilisation(self, query: PeriodQuery) -> ReportTable:
        return table_of(UtilisationPoint, (await self._gpus.utilisation(query)).hours)

    async def break_even(self, query: BreakEvenQuery) -> ReportTable:
        """Monthly bills by volume."""
        view = await self._gpus.break_even(query)
        return table_of(CurvePoint, view.curve, notes=(view.report.verdict,))

    async def forecast(self, query: ForecastQuery) -> ReportTable:
        view = await self._forecasts.forecast(query)
        return table_of(ForecastPoint, view.days, notes=(view.method,))

    async def anomalies(self, query: DailyQuery) -> ReportTable:
        return table_of(Anomaly, (await self._forecasts.anomalies(query)).unusual)


def _label(day: int) -> str:
    """The day as text, as in the sums."""
    return moment_of(day * DAY_US).date().isoformat()


def costs_file(table: CostTable) -> ReportTable:
    """Leaves out the total, which would be counted twice by anyone who adds up the rows."""
    notes: list[str] = []
    if table.total.unpriced_requests:
        notes.append(f"{table.total.unpriced_requests} requests of unknown price are in no cost")
    if table.idle is not None:
        notes.append(f"{table.idle.idle_usd} USD of idle rent of your own GPUs are in no row")
    if table.as_of is not None:
        notes.append(f"corrections booked from {table.as_of.isoformat()} on are left out")
    if "tag" in table.by:
        notes.append("a request with several tags counts in each")
    return _with_key_names(table_of(CostRow, table.rows, by=table.by, notes=notes), table.key_names)


def _with_key_names(table: ReportTable, names: Mapping[str, str]) -> ReportTable:
    """Adds `key_name` next to `key` when grouped by key."""
    columns = [column.name for column in table.columns]
    if "key" not in columns:
        return table
    after = columns.index("key") + 1
    return ReportTable(
        (*table.columns[:after], Column("key_name", "text"), *table.columns[after:]),
        [{**row, "key_name": names.get(str(row["key"]))} for row in table.rows],
        table.notes,
    )
