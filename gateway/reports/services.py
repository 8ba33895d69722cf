"""Assembles the reports of one deployment, for both the admin API and the command line."""

from collections.abc import Callable
from dataclasses import dataclass

from gateway.composition.deployment import Deployment
from gateway.config.gpu_table_file import load_gpu_table
from gateway.config.rents import present_rents
from gateway.economics.rent import RentHistory, histories
from gateway.reports.books import Books, BooksOf
from gateway.reports.break_even_service import BreakEvenOf, BreakEvenService
from gateway.reports.files import ReportFiles
from gateway.reports.forecast_service import ForecastService
from gateway.reports.plans import own_gpus
from gateway.reports.reconcile_service import ReconcileService
from gateway.reports.what_if_service import WhatIfOf, WhatIfService
from gateway.routing.snapshot import Snapshot
from gateway.sums import BookStore, RentStore


@dataclass(frozen=True, slots=True)
class ReportServices:
    books: Books
    gpus: BreakEvenService
    forecasts: ForecastService
    files: ReportFiles
    reconciliations: ReconcileService
    what_ifs: WhatIfService


def build_report_services(
    store: BookStore,
    rents: RentStore,
    deployment: Callable[[], Deployment],
    snapshot: Callable[[], Snapshot],
    now_us: Callable[[], int],
) -> ReportServices:
    """`deployment` and `snapshot` are called anew for every question, so that reports use what routing uses."""

    async def rented() -> list[RentHistory]:
        return histories(await rents.rents() or present_rents(deployment().settings))

    def priced_as(provider: str) -> dict[str, str]:
        models = [model for model in snapshot().candidates.values() if model.provider == provider]
        return {model.upstream_model: model.priced_as for model in models if model.priced_as}

    books = Books(store, BooksOf(snapshot, rented, now_us))
    compared = BreakEvenOf(snapshot, lambda: own_gpus(deployment().settings, deployment().curve))
    gpus = BreakEvenService(store, books, compared)
    forecasts = ForecastService(store, now_us)
    asked = WhatIfOf(snapshot, lambda: load_gpu_table(deployment().home))
    return ReportServices(
        books=books,
        gpus=gpus,
        forecasts=forecasts,
        files=ReportFiles(store, books, gpus, forecasts),
        reconciliations=ReconcileService(store, priced_as),
        what_ifs=WhatIfService(store, books, asked),
    )
