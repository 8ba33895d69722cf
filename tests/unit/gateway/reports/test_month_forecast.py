"""The overview's month under way: from whole days only."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

from gateway.economics.rent import RentHistory
from gateway.ledger.entry import Cost
from gateway.reports.books import Books, BooksOf
from gateway.reports.views import PeriodQuery
from gateway.storage.database import migrate_engine, open_database
from gateway.storage.sql_ledger import SqlLedger
from gateway.storage.sql_reports import SqlReports
from tests.builders import make_snapshot
from tests.unit.gateway.ledger.builders import make_entry, make_intent

BEGAN = datetime(2026, 11, 2, 23, 30, tzinfo=UTC)
NOW = datetime(2026, 11, 8, tzinfo=UTC)


def us(moment: datetime) -> int:
    return round(moment.timestamp()) * 1_000_000


async def no_gpus() -> list[RentHistory]:
    return []


async def test_the_hour_in_which_the_ledger_began_is_no_day(tmp_path: Path) -> None:
    database = open_database(f"sqlite+aiosqlite:///{tmp_path / 'x.db'}")
    await migrate_engine(database)
    moments = [BEGAN, *(datetime(2026, 11, day, 12, tzinfo=UTC) for day in range(3, 8))]
    entries = [
        make_entry(number, intent=make_intent(number, accepted_at_us=us(moment)), cost=Cost(output_pico_usd=10**12))
        for number, moment in enumerate(moments)
    ]
    await SqlLedger(database).insert(entries)
    books = Books(SqlReports(database), BooksOf(make_snapshot, no_gpus, lambda: us(NOW + timedelta(hours=12))))
    found = (await books.overview(PeriodQuery())).forecast
    await database.dispose()
    assert found is not None
    assert found.basis.startswith("mean of the last 5 days")
    assert (Decimal(found.spent_usd), Decimal(found.expected_usd)) == (6, Decimal("28.5"))
    assert found.low_usd == found.high_usd == found.expected_usd, "days that are alike leave no doubt"
