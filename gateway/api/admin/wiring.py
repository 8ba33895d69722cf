"""The admin API of one running gateway: the part of the composition root that names its stores and services."""

from datetime import date

from fastapi import APIRouter

from gateway.api.admin.backends import OwnEngine
from gateway.api.admin.exports import build_exports_router
from gateway.api.admin.keys import KeyService
from gateway.api.admin.notices import NoticeService
from gateway.api.admin.reports import build_forecast_router, build_reconcile_router, build_what_if_router
from gateway.api.admin.router import build_admin_router
from gateway.clock import now_us
from gateway.composition.running import Gateway
from gateway.config.settings import LOCAL_BACKEND
from gateway.extras import is_installed
from gateway.notices.key_budgets import spent_by_keys
from gateway.reports.budgets_service import BudgetsService
from gateway.reports.daily_costs import BudgetBurn, DailyHistory, TooShort
from gateway.reports.foreseen import foresee
from gateway.reports.replay_service import ReplayService
from gateway.reports.services import build_report_services
from gateway.routing.rules import RulesDocument
from gateway.routing.snapshot import Snapshot


def build_admin(gateway: Gateway) -> APIRouter:
    """Reads the gateway's current snapshot and curve on every request, so that it shows what routing uses."""

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

    stores = gateway.stores
    opened = stores.openings.of
    standings = BudgetsService(
        stores.budgets, stores.reports, _look_ahead, gateway.take_over, now_us=now_us, openings=opened
    )
    told = gateway.deployment.settings.notices
    if gateway.notices is not None and told.forecast:
        gateway.notices.foresee = lambda: foresee(standings, now_us())
    services = build_report_services(stores.reports, stores.rents, lambda: gateway.deployment, snapshot, now_us)
    return build_admin_router(
        pipeline=gateway.pipeline,
        prices=gateway.deployment.prices,
        keys=KeyService(
            stores.keys, stores.secrets, gateway.take_over, now_us, gateway.deployment.shared_limits.tiers.keys()
        ),
        rules=gateway.rules,
        replay=ReplayService(stores.ledger, stores.feedback, snapshot_of, now_us),
        costs=services.books,
        gpus=services.gpus,
        finance=(
            build_forecast_router(services.forecasts),
            build_exports_router(services.files),
            build_reconcile_router(services.reconciliations),
            build_what_if_router(services.what_ifs),
        ),
        bodies=stores.bodies,
        batches=stores.batches,
        key_names=stores.reports.key_names,
        entries=stores.entries,
        budgets=standings,
        keys_spent=lambda: spent_by_keys(
            stores.keys, stores.reports, gateway.pipeline.admission.limits, now_us(), opened
        ),
        notices=NoticeService(stores.notices.state, bool(told.webhook), told.shares_per_mille, told.forecast),
        audit=stores.audit,
        engine=own_engine,
    )


def _look_ahead(history: DailyHistory, budget_pico_usd: int, today: date) -> BudgetBurn | None:
    """Imports on first use: statsmodels takes seconds to import, and is an extra."""
    if not is_installed("statsmodels"):
        return None
    from gateway.reports.forecast import burn_of_month

    try:
        return burn_of_month(history, budget_pico_usd, today)
    except TooShort:
        return None
