"""The real routers over stores in memory, for tests of the admin API."""

from collections.abc import AsyncIterator, Collection, Mapping
from contextvars import ContextVar
from datetime import UTC, date, datetime
from functools import cache
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.testclient import TestClient
from starlette.types import Receive, Scope, Send

from backends.protocol import BackendHealth
from backends.scripted import Outcome, ScriptedBackend, follow
from gateway.access.keys import KeyRing, Role
from gateway.api.admin.entries import build_own_requests_router
from gateway.api.admin.exports import build_exports_router
from gateway.api.admin.keys import KeyService
from gateway.api.admin.notices import NoticeService
from gateway.api.admin.reports import build_forecast_router, build_reconcile_router, build_what_if_router
from gateway.api.admin.router import PREFIX, build_admin_router
from gateway.api.app import build_fastapi
from gateway.errors import InvalidRequest
from gateway.ledger.entry import Cost, Decision, Entry, Intent, Status
from gateway.notices.key_budgets import KeySpent
from gateway.notices.watch import NoticeState
from gateway.pipeline import Pipeline
from gateway.pricing.catalogue import ModelRecord, PriceBook, ProviderPrices
from gateway.reports.budgets_service import BudgetsService
from gateway.reports.daily_costs import BudgetBurn, DailyHistory
from gateway.reports.forecast_views import Anomalies, DailyQuery, ForecastQuery, ForecastView
from gateway.reports.reconcile_views import ReconcileBody, ReconciliationView
from gateway.reports.replay_views import ReplayResult
from gateway.reports.tables import Column, PagedTable, ReportTable
from gateway.reports.views import BreakEvenQuery, BreakEvenView, CostQuery, CostTable, Overview, PeriodQuery
from gateway.reports.views import Utilisation as UtilisationView
from gateway.reports.what_if_views import WhatIfQuery, WhatIfView
from gateway.routing.rules import ModelSpec, RulesDocument
from gateway.rulebook.catalogue import BackendFacts, Catalogue
from gateway.rulebook.service import RulesService
from gateway.stores import NewKey
from gateway.upstreams.load import Upstreams
from tests.builders import make_candidate, make_facts, make_prices, make_snapshot
from tests.memory_ledger import MemoryLedger
from tests.unit.gateway.api.memory_stores import (
    NOW_US,
    PEPPER,
    MemoryAllBatches,
    MemoryAudit,
    MemoryBodies,
    MemoryBudgets,
    MemoryEntries,
    MemoryKeys,
    MemoryRules,
    MemorySecrets,
    OneSum,
)

ROLES: tuple[Role, ...] = ("app", "lead", "viewer", "finance", "editor", "owner")
FIRST_RULES = """version: 1
rules:
  - name: default
    choose: {from: [small, large], by: order}
"""
OTHER_RULES = FIRST_RULES.replace("[small, large]", "[large]")


class NoReports:
    """Every report refuses: the figures are tested where they are computed."""

    async def costs(self, query: CostQuery) -> CostTable:
        raise InvalidRequest(f"no costs by {query.dimensions()} where {query.filters()}")

    async def overview(self, query: PeriodQuery) -> Overview:
        raise InvalidRequest("no overview")

    async def utilisation(self, query: PeriodQuery) -> UtilisationView:
        raise InvalidRequest("no utilisation")

    async def break_even(self, query: BreakEvenQuery) -> BreakEvenView:
        raise InvalidRequest("no break-even")

    async def forecast(self, query: ForecastQuery) -> ForecastView:
        raise InvalidRequest("no forecast")

    async def anomalies(self, query: DailyQuery) -> Anomalies:
        raise InvalidRequest("no anomalies")

    async def what_if(self, query: WhatIfQuery) -> WhatIfView:
        raise InvalidRequest("no what-if")

    async def reconcile(self, body: ReconcileBody) -> ReconciliationView:
        raise InvalidRequest("no reconciliation")


class NoFiles:
    """Every file is an empty table."""

    async def _nothing(self, query: object) -> ReportTable:
        return ReportTable((Column("nothing", "text"),), ())

    costs = savings = utilisation = break_even = forecast = anomalies = _nothing

    async def focus(self, query: object) -> PagedTable:
        async def pages() -> AsyncIterator[ReportTable]:
            for _ in range(2):
                yield await self._nothing(query)

        return PagedTable((Column("nothing", "text"),), pages())


def catalogue() -> Catalogue:
    def spec(name: str) -> ModelSpec:
        return ModelSpec(backend="one", upstream_model=name, context_window=1000)

    return Catalogue({"one": BackendFacts(provider="acme")}, {"small": spec("small"), "large": spec("large")})


class AdminRig:
    """The real admin API over in-memory stores, with one key per role; `applied` records rules passed to routing."""

    def __init__(self, rules_file: Path | None = None) -> None:
        self.keys = MemoryKeys()
        self.secrets = MemorySecrets(self.keys)
        self.told = NoticeState(NOW_US)
        self.spent_by_key: list[KeySpent] = []
        self.rules_store = MemoryRules()
        self.entries = MemoryEntries()
        self.bodies = MemoryBodies()
        self.batches = MemoryAllBatches()
        self.applied: list[tuple[RulesDocument, str]] = []
        self.ring = KeyRing(PEPPER)
        self.replayed: list[RulesDocument] = []
        self.pipeline = Pipeline(
            keys=self.ring,
            backends={"one": ScriptedBackend("one", follow([Outcome()]))},
            upstreams=Upstreams(health={"one": BackendHealth(True)}),
            ledger=MemoryLedger(),
            observer=_Silent(),
            snapshot=make_snapshot(candidates=[make_candidate("small", backend="one")]),
            classifier=None,
            now_us=lambda: NOW_US,
        )
        self.rules = RulesService(
            self.rules_store,
            catalogue(),
            lambda document, version: self.applied.append((document, version)),
            now_us=lambda: NOW_US,
            file=rules_file,
        )
        self.budgets = MemoryBudgets()
        self.key_service = KeyService(self.keys, self.secrets, self._refresh, lambda: NOW_US)
        self.budgets_service = BudgetsService(self.budgets, OneSum(), _no_outlook, self._refresh, now_us=lambda: NOW_US)
        self.notices = NoticeService(self.notices_told, has_webhook=True, shares_per_mille=(800, 1000), forecast=True)
        self.client = TestClient(self._answer, raise_server_exceptions=True)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        _asked.set(self)
        await admin_app()(scope, receive, send)

    async def start(self) -> "AdminRig":
        for role in ROLES:
            team = "red" if role == "lead" else None
            await self.keys.create(NewKey(name=role, role=role, team=team), author="test")
        await self._refresh()
        return self

    async def notices_told(self) -> NoticeState:
        return self.told

    async def key_names(self, key_ids: Collection[str]) -> Mapping[str, str]:
        return {one.record.id: one.record.name for one in self.keys.listed if one.record.id in key_ids}

    async def keys_spent(self) -> list[KeySpent]:
        return self.spent_by_key

    async def _refresh(self) -> None:
        self.ring.replace(self.keys.ring(), await self.secrets.replaced())

    async def replay(self, document: RulesDocument, since_us: int | None, until_us: int | None) -> ReplayResult:
        self.replayed.append(document)
        at = datetime(2026, 11, 1, tzinfo=UTC)
        return ReplayResult(
            since=at,
            until=at,
            requests=1,
            moved_requests=0,
            refused_requests=0,
            unpriced_requests=0,
            cost_before_usd="1",
            cost_after_usd="1",
            quality_before=None,
            quality_after=None,
            time_to_first_token_before_seconds=None,
            time_to_first_token_after_seconds=None,
            moves=[],
        )

    def ask(self, role: Role, method: str, path: str, /, **body: Any) -> Any:
        secret = self.keys.secrets[f"key-{ROLES.index(role)}"]
        return self.client.request(
            method, path, headers={"authorization": f"Bearer {secret}"}, json=body if body else None
        )


_asked: ContextVar[AdminRig] = ContextVar("_asked")


class _Its:
    """The attribute of that name on whichever rig is current."""

    def __init__(self, name: str, **own: Any) -> None:
        self._name = name
        vars(self).update(own)

    def __getattr__(self, name: str) -> Any:
        return getattr(getattr(_asked.get(), self._name), name)


@cache
def admin_app() -> FastAPI:
    """Shared by all rigs: creating the routes took most of a test's time."""

    def its(name: str, **own: Any) -> Any:
        return _Its(name, **own)

    async def replay(document: RulesDocument, since_us: int | None, until_us: int | None) -> ReplayResult:
        return await _asked.get().replay(document, since_us, until_us)

    app = build_fastapi()
    book = PriceBook([ProviderPrices("acme", (ModelRecord("small", (make_prices(),)),))])
    admin = build_admin_router(
        pipeline=its("pipeline", keys=its("ring")),
        prices=book,
        keys=its("key_service"),
        rules=its("rules"),
        replay=replay,
        costs=NoReports(),
        gpus=NoReports(),
        finance=(
            build_forecast_router(NoReports()),
            build_exports_router(NoFiles()),
            build_reconcile_router(NoReports()),
            build_what_if_router(NoReports()),
        ),
        entries=its("entries"),
        bodies=its("bodies"),
        batches=its("batches"),
        key_names=lambda key_ids: _asked.get().key_names(key_ids),
        budgets=its("budgets_service"),
        keys_spent=lambda: _asked.get().keys_spent(),
        notices=its("notices"),
        audit=MemoryAudit(),
        engine=lambda: None,
    )
    app.include_router(admin, prefix=PREFIX)
    app.include_router(build_own_requests_router(its("entries"), its("ring"), lambda: NOW_US))
    return app


def _no_outlook(days: DailyHistory, budget: int, today: date) -> BudgetBurn | None:
    return None


class _Silent:
    def settled(self, entry: Entry) -> None: ...

    def unclassified(self) -> None: ...

    def attempt_failed(self, candidate: object, error: object) -> None: ...


def make_entry(request_id: str = "0" * 32, key_id: str = "key-0", **changes: Any) -> Entry:
    decision = Decision("default", "small", ("small", "large"), 500, 0.7, 1.0, "r", "p", "c", make_facts())
    intent = Intent(
        request_id, NOW_US, key_id, "red", None, ("a",), "chat.completions", "auto", True, decision,
        "one", "acme", "small", 10_000,
    )  # fmt: skip
    values: dict[str, Any] = {
        "intent": intent, "status": Status.completed, "model": "small", "backend": "one", "provider": "acme",
        "upstream_model": "small", "input_tokens": 100, "cached_input_tokens": 40, "cache_write_5m_tokens": 10,
        "cache_write_1h_tokens": 0, "output_tokens": 20, "reasoning_tokens": 5, "is_usage_estimated": False,
        "is_simulated": False, "service_tier": None,
        "cost": Cost(input_pico_usd=50, cached_input_pico_usd=4, cache_write_pico_usd=13, output_pico_usd=80),
        "cost_lower_pico_usd": 147, "cost_upper_pico_usd": 147, "gpu_seconds": 0.0, "queue_seconds": 0.1,
        "time_to_first_token_seconds": 0.4, "prefill_tokens_per_second": None, "decode_tokens_per_second": 19.0,
        "total_seconds": 1.4, "finish_reason": "stop", "http_status": 200, "error": None, "attempts": (),
    }  # fmt: skip
    return Entry(**{**values, **changes})
