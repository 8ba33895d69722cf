"""The demonstration's month as the reports of this folder read it: its ledger, its prices and its GPUs."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.composition.deployment import Deployment
from gateway.config.rents import present_rents
from gateway.config.settings import LOCAL_BACKEND
from gateway.economics.rent import GpuRent, RentHistory, histories
from gateway.ledger.entry import Entry
from gateway.reports.books import Books, BooksOf
from gateway.reports.break_even_service import BreakEvenOf, BreakEvenService
from gateway.reports.plans import OwnGpus, own_engine_plan
from gateway.reports.services import ReportServices, build_report_services
from gateway.routing.snapshot import Snapshot
from gateway.storage.sql.reports import SqlReports

END = datetime(2026, 11, 20, 12, tzinfo=UTC)
NOW_US = round(END.timestamp()) * 1_000_000
REQUESTS = 400


class Month(NamedTuple):
    deployment: Deployment
    database: AsyncEngine
    entries: list[Entry]
    snapshot: Snapshot

    @property
    def books(self) -> Books:
        return self.books_with(present_rents(self.deployment.settings))

    def books_with(self, rents: Sequence[GpuRent]) -> Books:
        async def rented() -> list[RentHistory]:
            return histories(rents)

        return Books(SqlReports(self.database), BooksOf(lambda: self.snapshot, rented, lambda: NOW_US))

    @property
    def break_even(self) -> BreakEvenService:
        plan = own_engine_plan(self.deployment.settings.engine)
        of = BreakEvenOf(lambda: self.snapshot, lambda: [OwnGpus(LOCAL_BACKEND, plan, None)])
        return BreakEvenService(SqlReports(self.database), self.books, of)


class Recorded(NamedTuple):
    """Rents of earlier starts."""

    known: Sequence[GpuRent] = ()

    async def rents(self) -> Sequence[GpuRent]:
        return self.known

    async def keep(self, present: Sequence[GpuRent], hour: int) -> None:
        raise AssertionError("a report records nothing")


NOTHING = Recorded()


def services(month: Month, recorded: Recorded = NOTHING) -> ReportServices:
    store = SqlReports(month.database)
    return build_report_services(store, recorded, lambda: month.deployment, lambda: month.snapshot, lambda: NOW_US)
