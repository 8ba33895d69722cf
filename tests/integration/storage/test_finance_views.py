"""Finance's views agree with the ledger, and every panel's query runs on the database that it is written for."""

import re
from collections.abc import Sequence
from typing import Any

import pytest
from sqlalchemy import Row, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine

from dashboards.grafana_boards import BOARDS
from gateway.money import usd
from gateway.reports.cost_rows import Grouped, rows_of
from gateway.reports.views import Shown
from gateway.storage.sql.adjustments import SqlAdjustments
from gateway.storage.sql.budgets import SqlBudgets
from gateway.storage.sql.ledger import SqlLedger
from gateway.storage.sql.reports import SqlReports
from gateway.stores import Adjustment, Budget
from gateway.sums import Dimension, Sums, SumsQuery
from tests.unit.gateway.ledger.builders import make_entry, make_intent

pytestmark = pytest.mark.integration
FILTER = re.compile(r"\$__unixEpochFilter\((.*?)\)")
QUERIES = [
    (f"{name}: {panel.title}", query)
    for name, (_, panels) in BOARDS.items()
    for panel in panels
    if panel.is_sql
    for _, query in panel.queries
]


async def fill(engine: AsyncEngine) -> None:
    entries = [make_entry(n, intent=make_intent(n * 900_000_000)) for n in range(40)]
    await SqlLedger(engine).insert(entries)
    await SqlBudgets(engine).set(Budget("all", "", 12_500_000_000_000, "ada", 1))


@pytest.mark.parametrize("view", ["finance_hours", "finance_days"])
async def test_a_view_adds_up_to_the_ledger(engine: AsyncEngine, view: str) -> None:
    await fill(engine)
    unpriced = [make_entry(n, intent=make_intent(n), cost=None) for n in (98, 99)]
    await SqlLedger(engine).insert(unpriced)
    known = Adjustment(unpriced[0].intent.request_id, "reprice", "prices-2", 5, "the price became known")
    assert await SqlAdjustments(engine, trusts_clock=True).book([known], author="ada") == 1
    [total] = await SqlReports(engine).sums(SumsQuery(0, 2**60))
    async with engine.connect() as connection:
        names = {"cost_usd": "cost", "requests": "requests", "input_tokens": "input", "unpriced_requests": "unpriced"}
        sums = ", ".join(f"SUM({column}) AS {name}" for column, name in names.items())
        row = (await connection.execute(text(f"SELECT {sums} FROM {view}"))).one()
    assert float(row.cost) == pytest.approx(float(usd(total.corrected_cost_pico_usd)), rel=1e-12)
    assert (row.requests, row.input) == (total.requests, total.input_tokens)
    assert row.unpriced == total.still_unpriced_requests == 1


async def test_views_cannot_be_written(engine: AsyncEngine) -> None:
    await fill(engine)
    for view in ("finance_hours", "finance_days", "finance_budgets"):
        async with engine.connect() as connection:
            with pytest.raises(DBAPIError):
                await connection.execute(text(f"DELETE FROM {view}"))


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
async def test_every_panel_runs_on_postgresql(engine: AsyncEngine) -> None:
    """With Grafana's macro replaced as Grafana does."""
    await fill(engine)
    assert len(QUERIES) > 4
    for where, query in QUERIES:
        assert await run_panel(engine, query), where


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
async def test_a_million_tokens_cost_what_they_cost_in_reports(engine: AsyncEngine) -> None:
    """Requests without a known price were divided by too."""
    await fill(engine)
    unpriced = [make_entry(n, intent=make_intent(n), cost=None, output_tokens=n) for n in range(90, 110)]
    await SqlLedger(engine).insert(unpriced)
    table = Grouped(
        SumsQuery(0, 2**60, ("model",)), *await sums_by(engine, (), ("operation", "status", "backend", "is_simulated"))
    )
    [row] = rows_of(table, Shown()).rows
    [query] = [query for where, query in QUERIES if "Cost per million" in where]
    [panel] = await run_panel(engine, query)
    assert float(panel.usd_per_million) == pytest.approx(float(row.blended_usd_per_mtok or 0), rel=1e-4)


async def sums_by(engine: AsyncEngine, *finer: tuple[Dimension, ...]) -> Sequence[Sequence[Sums]]:
    return await SqlReports(engine).sums_together([SumsQuery(0, 2**60, ("model", *by)) for by in finer])


async def run_panel(engine: AsyncEngine, query: str) -> Sequence[Row[Any]]:
    async with engine.connect() as connection:
        return (await connection.execute(text(FILTER.sub(r"\1 >= 0 AND \1 <= 9000000000", query)))).all()
