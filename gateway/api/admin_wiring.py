"""The admin API of one running gateway: the part of the composition root that names its stores and services."""

import importlib.util
from dataclasses import dataclass
from datetime import date

from fastapi import APIRouter

from gateway.api.admin import build_admin_router
from gateway.api.admin_keys import KeyService
from gateway.api.admin_operations import OwnEngine
from gateway.api.admin_reports import (
    BreakEvenQuery,
    BreakEvenView,
    CostQuery,
    CostTable,
    Overview,
    PeriodQuery,
    Utilisation,
)
from gateway.books import Books, BooksOf
from gateway.break_even_service import BreakEvenOf, BreakEvenService
from gateway.budgets_service import BudgetsService, DaysOfCost, Outlook
from gateway.config.settings import LOCAL_BACKEND
from gateway.economics.traffic import GpuPlan
from gateway.errors import InvalidRequest
from gateway.plans import own_engine_plan, rented_gpus, throughput
from gateway.replay_service import ReplayService
from gateway.routing.rules import RulesDocument
from gateway.routing.snapshot import Snapshot
from gateway.storage.sql_audit import SqlAuditLog
from gateway.storage.sql_budgets import SqlBudgets
from gateway.storage.sql_entries import SqlEntries
from gateway.storage.sql_reports import SqlReports
from gateway.wiring import Gateway, now_us


@dataclass(frozen=True, slots=True)
class AllReports:
    """Implements admin_reports.Reports from its two halves."""

    books: Books
    break_even_service: BreakEvenService

    async def costs(self, query: CostQuery) -> CostTable:
        return await self.books.costs(query)

    async def overview(self, query: PeriodQuery) -> Overview:
        return await self.books.overview(query)

    async def utilisation(self, query: PeriodQuery) -> Utilisation:
        """The line above which owning pays is the break-even report's, so that the two never disagree."""
        found = await self.books.utilisation(query)
        try:
            asked = BreakEvenQuery(since=query.since, until=query.until)
            view = await self.break_even_service.break_even(asked)
        except InvalidRequest:  # too little traffic to say
            return found
        return found.model_copy(update={"break_even_utilisation": view.report.unit.break_even_utilisation})

    async def break_even(self, query: BreakEvenQuery) -> BreakEvenView:
        return await self.break_even_service.break_even(query)


def build_admin(gateway: Gateway) -> APIRouter:
    """Reads the gateway's present snapshot and curve at every question, so that it shows what routing uses."""

    def plan() -> GpuPlan:
        return own_engine_plan(gateway.deployment.settings.engine)

    def snapshot() -> Snapshot:
        return gateway.pipeline.snapshot

    def snapshot_of(document: RulesDocument) -> Snapshot:
        deployment = gateway.deployment
        return deployment.catalogue.snapshot(
            document, deployment.prices, classifier_version=snapshot().classifier_version, at_us=now_us()
        )

    def own_engine() -> OwnEngine | None:
        settings = gateway.deployment.settings.engine
        if not settings.is_enabled:
            return None
        return OwnEngine(LOCAL_BACKEND, gateway.deployment.curve, settings.gpu_hour_pico_usd)

    store = SqlReports(gateway.database)
    books = Books(store, BooksOf(snapshot, lambda: rented_gpus(gateway.deployment.settings), now_us))
    compared = BreakEvenOf(snapshot, plan, lambda: throughput(gateway.deployment.curve), now_us)
    return build_admin_router(
        pipeline=gateway.pipeline,
        prices=gateway.deployment.prices,
        keys=KeyService(gateway.keys, gateway.refresh),
        rules=gateway.rules,
        replay=ReplayService(gateway.ledger, snapshot_of, now_us),
        reports=AllReports(books, BreakEvenService(store, books, compared)),
        entries=SqlEntries(gateway.database),
        budgets=BudgetsService(SqlBudgets(gateway.database), store, _look_ahead, now_us=now_us),
        audit=SqlAuditLog(gateway.database),
        engine=own_engine,
    )


def _look_ahead(days: DaysOfCost, budget_pico_usd: int, first: date, last: date) -> Outlook | None:
    """Imported when first asked for: statsmodels takes seconds, and is an extra."""
    if importlib.util.find_spec("statsmodels") is None:
        return None
    from gateway.reports.outlook import look_ahead

    return look_ahead(days, budget_pico_usd, first, last)
