"""Work that grows with a report's rows is not done by the thread that serves requests."""

import threading
from collections.abc import ItemsView, Sequence

from msgspec.structs import replace

from gateway.reports.books import Books, BooksOf
from gateway.reports.views import CostQuery
from gateway.storage.sql.reports import SqlReports
from gateway.sums import Dimension, Sums, SumsQuery
from tests.unit.gateway.reports.month import END, NOW_US, Month


class Group(dict[Dimension, str | None]):
    """Records which thread makes a row of it."""

    threads: set[int] = set()  # noqa: RUF012 (of all)

    def items(self) -> ItemsView[Dimension, str | None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        self.threads.add(threading.get_ident())
        return ItemsView(self)


class Noting(SqlReports):
    async def sums_together(self, queries: Sequence[SumsQuery]) -> Sequence[Sequence[Sums]]:
        answers = await super().sums_together(queries)
        return [[replace(one, group=Group(one.group)) for one in found] for found in answers]


async def no_rents() -> list[object]:
    return []


async def test_rows_of_a_cost_report_are_made_in_another_thread(month: Month) -> None:
    books = Books(Noting(month.database), BooksOf(lambda: month.snapshot, no_rents, lambda: NOW_US))  # pyright: ignore[reportArgumentType]
    table = await books.costs(CostQuery(by="key,model", until=END))
    assert table.rows
    assert Group.threads
    assert threading.get_ident() not in Group.threads
