"""Every report as a table that can be written to a file; the figures are those of the reports themselves."""

import asyncio
from collections.abc import Mapping

from gateway.moments import moment_of
from gateway.reports.books import Books
from gateway.reports.focus import Period, focus_table
from gateway.reports.focus_columns import GROUP_BY
from gateway.reports.forecast_views import Anomaly, DailyQuery, ForecastPoint, ForecastQuery, Forecasts
from gateway.reports.model_tables import table_of
from gateway.reports.tables import Column, ReportTable
from gateway.reports.views import (
    BreakEvenQuery,
    CostQuery,
    CostRow,
    CostTable,
    CurvePoint,
    PeriodQuery,
    Reports,
    Savings,
    UtilisationPoint,
)
from gateway.sums import ReportStore, SumsQuery


class ReportFiles:
    """Implements admin_exports.Files."""

    def __init__(self, store: ReportStore, books: Books, reports: Reports, forecasts: Forecasts) -> None:
        self._store = store
        self._books = books
        self._reports = reports
        self._forecasts = forecasts

    async def focus(self, query: PeriodQuery) -> ReportTable:
        """FOCUS 1.3, by UTC day."""
        bounds = self._books.bounds(query)
        groups = await self._store.sums(SumsQuery(bounds.since_us, bounds.until_us, GROUP_BY))
        capacity = await self._books.gpus.capacity(bounds)
        period = Period(moment_of(bounds.since_us), moment_of(bounds.until_us))
        names = await self._store.key_names({key_id for group in groups if (key_id := group.group["key"])})
        # Off the event loop: a year of many keys is many rows, and answers pass here too.
        return await asyncio.to_thread(focus_table, groups, capacity, period, names)

    async def costs(self, query: CostQuery) -> ReportTable:
        return costs_file(await self._reports.costs(query))

    async def savings(self, query: CostQuery) -> ReportTable:
        return table_of(Savings, (await self._reports.costs(query)).savings)

    async def utilisation(self, query: PeriodQuery) -> ReportTable:
        return table_of(UtilisationPoint, (await self._reports.utilisation(query)).hours)

    async def break_even(self, query: BreakEvenQuery) -> ReportTable:
        """Monthly bills by volume."""
        view = await self._reports.break_even(query)
        return table_of(CurvePoint, view.curve, notes=(view.report.verdict,))

    async def forecast(self, query: ForecastQuery) -> ReportTable:
        view = await self._forecasts.forecast(query)
        return table_of(ForecastPoint, view.days, notes=(view.method,))

    async def anomalies(self, query: DailyQuery) -> ReportTable:
        return table_of(Anomaly, (await self._forecasts.anomalies(query)).unusual)


def costs_file(table: CostTable) -> ReportTable:
    """The total is left out: it would be one row too many for whoever adds them up."""
    notes: list[str] = []
    if table.total.unpriced_requests:
        notes.append(f"{table.total.unpriced_requests} requests of unknown price are in no cost")
    if table.idle is not None:
        notes.append(f"{table.idle.idle_usd} USD of idle rent of your own GPUs are in no row")
    if "tag" in table.by:
        notes.append("a request with several tags counts in each")
    return _with_key_names(table_of(CostRow, table.rows, by=table.by, notes=notes), table.key_names)


def _with_key_names(table: ReportTable, names: Mapping[str, str]) -> ReportTable:
    """`key_name` beside `key`, where keys are grouped by."""
    columns = [column.name for column in table.columns]
    if "key" not in columns:
        return table
    after = columns.index("key") + 1
    return ReportTable(
        (*table.columns[:after], Column("key_name", "text"), *table.columns[after:]),
        [{**row, "key_name": names.get(str(row["key"]))} for row in table.rows],
        table.notes,
    )
