"""Reports as files over HTTP: long ones are sent page by page; failing before the first page is an error response."""

from collections.abc import AsyncIterator

import pytest
from fastapi.responses import StreamingResponse

from gateway.api.admin.exports import paged
from gateway.errors import DatabaseDown
from gateway.reports.tables import Column, PagedTable, ReportTable

COLUMNS = (Column("day", "text"),)


class Days:
    """Pages of one row each; `made` records those requested so far."""

    def __init__(self, days: int, *, fails_at: int | None = None) -> None:
        self._days = days
        self._fails_at = fails_at
        self.made = 0

    async def pages(self) -> AsyncIterator[ReportTable]:
        for day in range(self._days):
            if day == self._fails_at:
                raise DatabaseDown("gone")
            self.made += 1
            yield ReportTable(COLUMNS, [{"day": str(day)}])


async def test_a_page_is_made_when_the_one_before_has_left() -> None:
    days = Days(5)
    response = await paged("focus", PagedTable(COLUMNS, days.pages()), "csv")
    assert isinstance(response, StreamingResponse)
    assert response.headers["content-disposition"] == 'attachment; filename="breakeven-focus.csv"'
    left: list[str | bytes | memoryview] = []
    async for piece in response.body_iterator:
        left.append(piece)
        assert days.made <= len(left)
    assert b"".join(map(bytes, left)) == b"day\r\n0\r\n1\r\n2\r\n3\r\n4\r\n"  # pyright: ignore[reportArgumentType]


async def test_one_without_a_page_has_its_header() -> None:
    response = await paged("focus", PagedTable(COLUMNS, Days(0).pages()), "csv")
    assert isinstance(response, StreamingResponse)
    assert [piece async for piece in response.body_iterator] == [b"day\r\n"]


async def test_a_database_that_is_down_is_an_error_before_the_first_byte_and_cuts_the_file_after_it() -> None:
    with pytest.raises(DatabaseDown):
        await paged("focus", PagedTable(COLUMNS, Days(3, fails_at=0).pages()), "csv")
    response = await paged("focus", PagedTable(COLUMNS, Days(3, fails_at=2).pages()), "csv")
    assert isinstance(response, StreamingResponse)
    with pytest.raises(DatabaseDown):
        _ = [piece async for piece in response.body_iterator]
