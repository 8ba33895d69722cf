"""`/admin/v1/reports/files/*`: every report as CSV or Parquet, and the books as FOCUS 1.3."""
# pyright: reportUnusedFunction=false

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any, Protocol

from fastapi import APIRouter, Query, Response

from gateway.api.admin.guard import OnlyTeam, narrowed, needs
from gateway.api.streamed import Streamed, begun
from gateway.errors import InvalidRequest, StateError
from gateway.reports.forecast_views import DailyQuery, ForecastQuery
from gateway.reports.tables import MEDIA_TYPES, Format, PagedTable, ReportTable, encode, file_of
from gateway.reports.views import BooksQuery, BreakEvenQuery, CostQuery, PeriodQuery

FILE: dict[int | str, dict[str, Any]] = {
    200: {"content": {kind.partition(";")[0]: {} for kind in MEDIA_TYPES.values()}, "description": "The file."}
}


class Files(Protocol):
    """Each report as a table. Raises the same errors as the report itself."""

    async def focus(self, query: BooksQuery) -> PagedTable: ...

    async def costs(self, query: CostQuery) -> ReportTable: ...

    async def savings(self, query: CostQuery) -> ReportTable: ...

    async def utilisation(self, query: PeriodQuery) -> ReportTable: ...

    async def break_even(self, query: BreakEvenQuery) -> ReportTable: ...

    async def forecast(self, query: ForecastQuery) -> ReportTable: ...

    async def anomalies(self, query: DailyQuery) -> ReportTable: ...


class FocusFile(BooksQuery):
    format: Format = "csv"


class CostFile(CostQuery):
    format: Format = "csv"


class PeriodFile(PeriodQuery):
    format: Format = "csv"


class BreakEvenFile(BreakEvenQuery):
    format: Format = "csv"


class ForecastFile(ForecastQuery):
    format: Format = "csv"


class AnomalyFile(DailyQuery):
    format: Format = "csv"


def build_exports_router(files: Files) -> APIRouter:
    """The paths below `/reports/files`."""
    router = APIRouter(prefix="/reports/files", tags=["admin: reports"])
    file: dict[str, Any] = {"response_class": Response, "responses": FILE}
    declared: dict[str, Any] = file | {"openapi_extra": needs("reports.read")}
    for_leads: dict[str, Any] = file | {"openapi_extra": needs("reports.read", or_lead=True)}

    @router.get("/focus", **declared)
    async def focus(query: Annotated[FocusFile, Query()]) -> Response:
        """The ledger as a FOCUS 1.3 cost and usage dataset, by day. Idle GPU capacity has rows of its own."""
        return await paged("focus", await files.focus(query), query.format)

    @router.get("/costs", **for_leads)
    async def costs(query: Annotated[CostFile, Query()], only_team: OnlyTeam) -> Response:
        """The rows of `/reports/costs`, without the total."""
        return await whole("costs", await files.costs(narrowed(query, only_team)), query.format)

    @router.get("/savings", **declared)
    async def savings(query: Annotated[CostFile, Query()]) -> Response:
        """What the same tokens would have cost at other models."""
        return await whole("savings", await files.savings(query), query.format)

    @router.get("/utilisation", **declared)
    async def utilisation(query: Annotated[PeriodFile, Query()]) -> Response:
        """GPU-seconds used and paid for, hour by hour."""
        return await whole("utilisation", await files.utilisation(query), query.format)

    @router.get("/break-even", **declared)
    async def break_even(query: Annotated[BreakEvenFile, Query()]) -> Response:
        """Monthly bills by volume, hosted and owned."""
        return await whole("break-even", await files.break_even(query), query.format)

    @router.get("/forecast", **declared)
    async def forecast(query: Annotated[ForecastFile, Query()]) -> Response:
        """The expected cost of the next days, with intervals."""
        return await whole("forecast", await files.forecast(query), query.format)

    @router.get("/anomalies", **declared)
    async def anomalies(query: Annotated[AnomalyFile, Query()]) -> Response:
        """Days whose cost is far from what their weekday and the trend suggest."""
        return await whole("anomalies", await files.anomalies(query), query.format)

    return router


async def whole(name: str, table: ReportTable, form: Format) -> Response:
    """A download. Raises InvalidRequest if Parquet support is not installed."""
    try:
        content = await asyncio.to_thread(encode, table, form)
    except StateError as error:
        raise InvalidRequest(str(error), param="format") from error
    return Response(content, media_type=MEDIA_TYPES[form], headers=_named(name, form))


async def paged(name: str, table: PagedTable, form: Format) -> Response:
    """A streamed download. A failure before the first page is an error response; a later one cuts the download off."""
    try:
        file = await asyncio.to_thread(file_of, table.columns, form)
    except StateError as error:
        raise InvalidRequest(str(error), param="format") from error
    pages = await begun(table.pages)

    async def pieces() -> AsyncIterator[bytes]:
        async for page in pages:
            yield await asyncio.to_thread(file.page, page)
        yield await asyncio.to_thread(file.end)

    return Streamed(pieces(), media_type=MEDIA_TYPES[form], headers=_named(name, form))


def _named(name: str, form: Format) -> dict[str, str]:
    return {"content-disposition": f'attachment; filename="breakeven-{name}.{form}"'}
