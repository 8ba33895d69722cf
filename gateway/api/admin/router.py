"""The admin API put together: every router behind one guard. Names no concrete store."""

from collections.abc import Callable, Sequence
from typing import Any

from fastapi import APIRouter, Depends

from gateway.api.admin.audit import build_audit_router
from gateway.api.admin.backends import OwnEngine, build_backends_router
from gateway.api.admin.batches import KeyNames, build_all_batches_router
from gateway.api.admin.bodies import build_bodies_router
from gateway.api.admin.budgets import KeysSpent, build_budgets_router
from gateway.api.admin.entries import build_entries_router
from gateway.api.admin.guard import ErrorBody, build_guard
from gateway.api.admin.keys import KeyService, build_keys_router
from gateway.api.admin.models import build_models_router
from gateway.api.admin.notices import NoticeService, build_notices_router
from gateway.api.admin.reports import build_reports_router
from gateway.api.admin.rules import build_rules_router
from gateway.batches.values import AllBatches
from gateway.kept_answers.body_keeper import BodyReader
from gateway.pipeline import Pipeline
from gateway.pricing.catalogue import PriceBook
from gateway.reports.budgets_service import BudgetsService
from gateway.reports.replay_views import Replay
from gateway.reports.views import CostReports, GpuReports
from gateway.rulebook.service import RulesService
from gateway.stores import AuditLog, BatchBooks

PREFIX = "/admin/v1"
REFUSALS: dict[int | str, dict[str, Any]] = {status: {"model": ErrorBody} for status in (400, 401, 403, 404, 409)}


def build_admin_router(
    *,
    pipeline: Pipeline,
    prices: PriceBook,
    keys: KeyService,
    rules: RulesService,
    replay: Replay,
    costs: CostReports,
    gpus: GpuReports,
    finance: Sequence[APIRouter],
    entries: BatchBooks,
    bodies: BodyReader,
    batches: AllBatches,
    key_names: KeyNames,
    budgets: BudgetsService,
    keys_spent: KeysSpent,
    notices: NoticeService,
    audit: AuditLog,
    engine: Callable[[], OwnEngine | None],
) -> APIRouter:
    """Everything under PREFIX. The caller must pass PREFIX when including the router: without a prefix FastAPI walks
    every route again to check for empty paths, which took most of the time to build the application.
    """
    guard = build_guard(pipeline.keys, lambda: pipeline.now_us())
    admin = APIRouter(dependencies=[Depends(guard)], responses=REFUSALS)
    for router in (
        build_reports_router(costs, gpus),
        *finance,
        build_entries_router(entries),
        build_bodies_router(bodies),
        build_all_batches_router(batches, key_names, entries),
        build_rules_router(rules, replay),
        build_keys_router(keys),
        build_budgets_router(budgets, lambda: pipeline.now_us(), keys_spent, pipeline.keys),
        build_notices_router(notices),
        build_models_router(pipeline, prices),
        build_backends_router(pipeline, engine),
        build_audit_router(audit),
    ):
        admin.include_router(router)
    return admin
