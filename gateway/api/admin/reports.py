"""`/admin/v1/reports/*`: sums over the ledger, the same figures that the command line prints."""
# pyright: reportUnusedFunction=false

import asyncio
from typing import Annotated

from fastapi import APIRouter, Query, Response

from gateway.api.admin.guard import OnlyTeam, narrowed, needs
from gateway.reports.forecast_views import Anomalies, DailyQuery, ForecastQuery, Forecasts, ForecastView
from gateway.reports.reconcile_views import ReconcileBody, Reconciliations, ReconciliationView
from gateway.reports.views import (
    BreakEvenQuery,
    BreakEvenView,
    ComparedQuery,
    CostReports,
    CostTable,
    CostTableQuery,
    GpuReports,
    Overview,
    PeriodQuery,
    Utilisation,
)
from gateway.reports.what_if_views import WhatIfQuery, WhatIfs, WhatIfView


def build_reports_router(of_costs: CostReports, of_gpus: GpuReports) -> APIRouter:
    """The paths below `/reports`."""
    router = APIRouter(prefix="/reports", tags=["admin: reports"])

    @router.get("/costs", response_model=CostTable, openapi_extra=needs("reports.read", or_lead=True))
    async def costs(query: Annotated[CostTableQuery, Query()], only_team: OnlyTeam) -> Response:
        """Spend and tokens by any dimension: all groups, or one page of them with the others as one row."""
        table = await of_costs.costs(narrowed(query, only_team))
        # Off the event loop: the work grows with the number of rows.
        return Response(await asyncio.to_thread(as_json, table), media_type="application/json")

    @router.get("/overview", openapi_extra=needs("reports.read"))
    async def overview(query: Annotated[ComparedQuery, Query()]) -> Overview:
        """The key figures of one period."""
        return await of_costs.overview(query)

    @router.get("/utilisation", openapi_extra=needs("reports.read"))
    async def utilisation(query: Annotated[PeriodQuery, Query()]) -> Utilisation:
        """The paid hours of your own engine, used and idle."""
        return await of_gpus.utilisation(query)

    @router.get("/break-even", openapi_extra=needs("reports.read"))
    async def break_even(query: Annotated[BreakEvenQuery, Query()]) -> BreakEvenView:
        """Whether owning the GPU pays off at this traffic, and from what volume."""
        return await of_gpus.break_even(query)

    return router


def as_json(table: CostTable) -> bytes:
    """Row by row, because pydantic lets no other thread run before it is done: for half a second with 100,000 rows."""
    rows = ",".join(row.model_dump_json() for row in table.rows)
    without = table.model_copy(update={"rows": []}).model_dump_json()
    return without.replace('"rows":[]', f'"rows":[{rows}]', 1).encode()


def build_forecast_router(forecasts: Forecasts) -> APIRouter:
    """The paths below `/reports` that need statsmodels."""
    router = APIRouter(prefix="/reports", tags=["admin: reports"])

    @router.get("/forecast", openapi_extra=needs("reports.read", or_lead=True))
    async def forecast(query: Annotated[ForecastQuery, Query()], only_team: OnlyTeam) -> ForecastView:
        """The expected cost of the next days, with intervals, and of the month against its budget."""
        return await forecasts.forecast(narrowed(query, only_team))

    @router.get("/anomalies", openapi_extra=needs("reports.read", or_lead=True))
    async def anomalies(query: Annotated[DailyQuery, Query()], only_team: OnlyTeam) -> Anomalies:
        """Days whose cost is far from what their weekday and the trend suggest."""
        return await forecasts.anomalies(narrowed(query, only_team))

    return router


def build_what_if_router(what_ifs: WhatIfs) -> APIRouter:
    """One path below `/reports`."""
    router = APIRouter(prefix="/reports", tags=["admin: reports"])

    @router.get("/what-if", openapi_extra=needs("reports.read"))
    async def what_if(query: Annotated[WhatIfQuery, Query()]) -> WhatIfView:
        """What it would cost to rent GPUs that you do not have, for models that you do not serve yet."""
        return await what_ifs.what_if(query)

    return router


def build_reconcile_router(reconciliations: Reconciliations) -> APIRouter:
    """One path below `/reports`."""
    router = APIRouter(prefix="/reports", tags=["admin: reports"])

    @router.post("/reconcile", openapi_extra=needs("reports.read"))
    async def reconcile(body: ReconcileBody) -> ReconciliationView:
        """Compare a provider's export with the ledger, per day and model, with the likely reason of each difference."""
        return await reconciliations.reconcile(body)

    return router
