"""A provider's export against a real ledger: compared, booked once, and then in agreement, on both databases."""

from datetime import UTC, datetime

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.errors import InvalidRequest
from gateway.reports.reconcile_service import ReconcileService, book_differences, view_of
from gateway.reports.reconcile_views import ReconcileBody
from gateway.storage.sql.adjustments import SqlAdjustments
from gateway.storage.sql.audit import SqlAuditLog
from gateway.storage.sql.ledger import SqlLedger
from gateway.storage.sql.reports import SqlReports
from tests.unit.gateway.ledger.builders import make_entry, make_intent

pytestmark = pytest.mark.integration
HEADER = "start_time,start_time_iso,amount_value,amount_currency,line_item\n"
COST = 243_000_000
"""Of one entry of the builder, in pico-USD."""


def line(dollars: str, model: str = "gpt-5.4-mini-2026-03-17") -> str:
    return f'0,2026-01-01T00:00:00+00:00,{dollars},usd,"{model}, output"\n'


async def test_differences_are_booked_once_and_then_the_month_agrees(engine: AsyncEngine) -> None:
    at = int(datetime(2026, 1, 1, 12, tzinfo=UTC).timestamp()) * 1_000_000
    entries = [make_entry(number, intent=make_intent(number, accepted_at_us=at + number)) for number in range(400)]
    simulated = make_entry(1000, intent=make_intent(1000, accepted_at_us=at), is_simulated=True)
    await SqlLedger(engine).insert([*entries, simulated])
    service, books = ReconcileService(SqlReports(engine)), SqlAdjustments(engine)
    export = HEADER + line("0.15") + line("7", "o9-research")

    compared = await service.compare("openai", export)
    view = view_of(compared)
    assert (view.our_usd, view.their_usd) == ("0.097200000000", "7.150000000000")
    assert view.agrees is False
    assert [row.model for row in view.rows] == ["gpt-5-4-mini", "o9-research"]
    assert "not in our books" in view.rows[1].likely_reason

    assert await book_differences(compared, books, reference="INV-7", author="ada") == 1
    assert await book_differences(compared, books, reference="INV-7", author="ada") == 0
    again = await service.reconcile(ReconcileBody(provider="openai", export=HEADER + line("0.15")))
    assert again.agrees is True
    assert again.our_usd == again.their_usd
    assert (await SqlAuditLog(engine).verify()).is_intact


async def test_an_export_of_nothing_is_refused(engine: AsyncEngine) -> None:
    service = ReconcileService(SqlReports(engine))
    for text in (HEADER, "hello"):
        with pytest.raises(InvalidRequest):
            await service.reconcile(ReconcileBody(provider="openai", export=text))
