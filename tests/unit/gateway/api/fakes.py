"""In-memory stores behind the real routers, for tests of the admin API."""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.testclient import TestClient

from backends.protocol import BackendHealth
from backends.scripted import Outcome, ScriptedBackend, follow
from gateway.access.keys import KeyRecord, KeyRing, ReplacedSecret, Role, hash_key
from gateway.access.rotation import NewSecret, OldSecret, Rotation
from gateway.api.admin import PREFIX, build_admin_router
from gateway.api.admin_entries import build_own_requests_router
from gateway.api.admin_exports import build_exports_router
from gateway.api.admin_keys import KeyService
from gateway.api.admin_notices import NoticeService
from gateway.api.admin_reports import build_forecast_router, build_reconcile_router, build_what_if_router
from gateway.api.app import build_fastapi
from gateway.economics.traffic import HourlyTraffic
from gateway.errors import Conflict, InvalidRequest
from gateway.kept_answers.body_keeper import Bodies
from gateway.ledger.entry import Entry
from gateway.limits.values import BudgetScope
from gateway.moments import moment_of
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
from gateway.rulebook.service import Activation, RulesService, StoredRules
from gateway.stores import AuditRecord, Budget, Correction, EntryWanted, KeyChange, ListedKey, NewKey, Verified
from gateway.sums import Dimension, Sums, SumsQuery
from gateway.upstreams.load import Upstreams
from tests.builders import make_candidate, make_prices, make_snapshot
from tests.memory_ledger import MemoryLedger

PEPPER = b"pepper"
NOW_US = 1_790_000_000_000_000
ROLES: tuple[Role, ...] = ("app", "lead", "viewer", "finance", "editor", "owner")
FIRST_RULES = """version: 1
rules:
  - name: default
    choose: {from: [small, large], by: order}
"""
OTHER_RULES = FIRST_RULES.replace("[small, large]", "[large]")


class MemoryRules:
    """RulesStore without a database."""

    def __init__(self) -> None:
        self.stored: dict[str, StoredRules] = {}
        self.log: list[Activation] = []
        self.diffs: list[str] = []

    async def put(self, rules: StoredRules) -> None:
        self.stored.setdefault(rules.version, rules)

    async def get(self, version: str) -> StoredRules | None:
        return self.stored.get(version)

    async def versions(self) -> Sequence[StoredRules]:
        return list(reversed(self.stored.values()))

    async def active(self) -> str | None:
        return self.log[-1].version if self.log else None

    async def activate(self, activation: Activation, *, diff: str) -> bool:
        if await self.active() != activation.previous:
            return False
        self.log.append(activation)
        self.diffs.append(diff)
        return True

    async def activations(self) -> Sequence[Activation]:
        return list(reversed(self.log))


class MemoryKeys:
    """KeyStore without a database; secrets are readable, so that a test can use them."""

    def __init__(self) -> None:
        self.listed: list[ListedKey] = []
        self.secrets: dict[str, str] = {}
        self.limited: dict[str, Mapping[str, Any]] = {}

    async def create(
        self, new: NewKey, *, author: str, limits: Mapping[str, Any] | None = None
    ) -> tuple[ListedKey, str]:
        allowed = frozenset(new.allowed_models) if new.allowed_models is not None else None
        record = KeyRecord(
            f"key-{len(self.listed)}", new.name, new.role, new.team, new.project, new.tags, allowed, new.expires_at_us
        )
        self.listed.append(ListedKey(record, NOW_US))
        self.secrets[record.id] = f"bk-{record.id}"
        self.limited[record.id] = limits or {}
        return self.listed[-1], self.secrets[record.id]

    async def list(self, ids: Collection[str] | None = None) -> Sequence[ListedKey]:
        return [one for one in reversed(self.listed) if ids is None or one.record.id in ids]

    async def revoke(self, key_id: str, *, author: str) -> bool:
        for index, one in enumerate(self.listed):
            if one.record.id == key_id:
                self.listed[index] = ListedKey(replace(one.record, revoked_at_us=NOW_US), one.created_at_us)
                return True
        return False

    async def limits(self) -> Mapping[str, Mapping[str, Any]]:
        return self.limited

    async def change(self, key_id: str, change: KeyChange, *, author: str) -> bool:
        for index, one in enumerate(self.listed):
            if one.record.id == key_id:
                given: dict[str, Any] = dict(change)
                self.limited[key_id] = given.pop("limits", self.limited[key_id])
                for name, form in (("tags", tuple), ("allowed_models", frozenset)):
                    if given.get(name) is not None:
                        given[name] = form(given[name])
                self.listed[index] = ListedKey(replace(one.record, **given), one.created_at_us)
                return True
        return False

    async def records(self) -> Mapping[bytes, KeyRecord]:
        return self.ring()

    async def find_by_hash(self, key_hash: bytes) -> KeyRecord | None:
        return self.ring().get(key_hash)

    def ring(self) -> dict[bytes, KeyRecord]:
        return {hash_key(PEPPER, self.secrets[one.record.id]): one.record for one in self.listed}


class MemorySecrets:
    """SecretStore beside MemoryKeys, at NOW_US; every old secret is remembered."""

    def __init__(self, keys: MemoryKeys) -> None:
        self._keys = keys
        self.old: dict[bytes, ReplacedSecret] = {}
        self.used: dict[bytes, float] = {}

    async def rotate(self, key_id: str, *, overlap_seconds: int, author: str) -> NewSecret | None:
        key = next((one.record for one in self._keys.listed if one.record.id == key_id), None)
        if key is None:
            return None
        if key.revoked_at_us is not None:
            raise Conflict(f"The key {key.name!r} was revoked; make another key.", code="key_revoked")
        ends_at_us = NOW_US + overlap_seconds * 10**6
        old = hash_key(PEPPER, self._keys.secrets[key_id])
        self.old[old] = ReplacedSecret(key_id, NOW_US, ends_at_us, float(overlap_seconds), not overlap_seconds)
        self._keys.secrets[key_id] = secret = f"bk-{key_id}-{len(self.old)}"
        return NewSecret(secret, ends_at_us)

    async def end_overlap(self, key_id: str, *, author: str) -> bool:
        await self.withdraw([key_hash for key_hash, one in self.old.items() if one.key_id == key_id])
        return any(one.record.id == key_id for one in self._keys.listed)

    async def rotations(self) -> Mapping[str, Rotation]:
        found: dict[str, Rotation] = {}
        for one in self.old.values():
            working = OldSecret(one.replaced_at_us, one.ends_at_us, None)
            before = found.get(one.key_id, Rotation(one.replaced_at_us)).working
            found[one.key_id] = Rotation(NOW_US, before if one.is_withdrawn else (working, *before))
        return found

    async def replaced(self) -> Mapping[bytes, ReplacedSecret]:
        return dict(self.old)

    async def note_uses(self, seconds_ago: Mapping[bytes, float]) -> None:
        self.used |= seconds_ago

    async def withdraw(self, hashes: Collection[bytes]) -> None:
        for key_hash in hashes:
            self.old[key_hash] = replace(self.old[key_hash], seconds_left=0.0, is_withdrawn=True, ends_at_us=NOW_US)


class MemoryBudgets:
    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], Budget] = {}

    async def budgets(self) -> Sequence[Budget]:
        return list(self.kept.values())

    async def set(self, budget: Budget) -> None:
        self.kept[budget.scope, budget.name] = budget

    async def remove(self, scope: BudgetScope, name: str, *, author: str) -> bool:
        return self.kept.pop((scope, name), None) is not None


class OneSum:
    """A ReportStore in which everything was spent on the last day of every period."""

    async def sums(self, query: SumsQuery) -> Sequence[Sums]:
        if query.by not in ((), ("day",), ("day", "status")):
            return []
        last: dict[Dimension, str | None] = {"day": moment_of(query.until_us - 1).date().isoformat()}
        return [Sums(last if query.by else {}, requests=1, input_pico_usd=25 * 10**12)]

    async def hourly_traffic(
        self, since_us: int, until_us: int, *, with_simulated: bool = True, of_all_kinds: bool = False
    ) -> Sequence[HourlyTraffic]:
        return []

    async def first_and_last_us(self) -> tuple[int, int] | None:
        return None

    async def key_names(self, key_ids: Collection[str]) -> Mapping[str, str]:
        return {}


class MemoryBodies:
    def __init__(self) -> None:
        self.stored: dict[str, Bodies] = {}
        self.readers: list[str] = []

    async def read(self, request_id: str, *, reader: str) -> Bodies | None:
        self.readers.append(reader)
        return self.stored.get(request_id)


class MemoryAudit:
    async def page(self, *, before: int | None, limit: int) -> Sequence[AuditRecord]:
        return []

    async def verify(self) -> Verified:
        return Verified(is_intact=True, records=0, first_broken=None)


class MemoryEntries:
    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.booked: list[Correction] = []

    async def find(self, wanted: EntryWanted) -> Sequence[Entry]:
        return list(reversed(self.entries))[: wanted.limit]

    async def get(self, request_id: str) -> Entry | None:
        return next((entry for entry in self.entries if entry.intent.request_id == request_id), None)

    async def corrections(self, request_ids: Sequence[str]) -> Mapping[str, Sequence[Correction]]:
        of = {number: [one for one in self.booked if one.booked.request_id == number] for number in request_ids}
        return {number: found for number, found in of.items() if found}


class NoReports:
    """Every report refuses: what the figures are is tested where they are computed."""

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
    """The real admin API over in-memory stores, with one key per role; `applied` is what routing was told."""

    def __init__(self, rules_file: Path | None = None) -> None:
        self.keys = MemoryKeys()
        self.secrets = MemorySecrets(self.keys)
        self.told = NoticeState(NOW_US)
        self.spent_by_key: list[KeySpent] = []
        self.rules_store = MemoryRules()
        self.entries = MemoryEntries()
        self.bodies = MemoryBodies()
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
        book = PriceBook([ProviderPrices("acme", (ModelRecord("small", (make_prices(),)),))])
        self.app: FastAPI = build_fastapi()
        self.app.include_router(
            build_admin_router(
                pipeline=self.pipeline,
                prices=book,
                keys=KeyService(self.keys, self.secrets, self._refresh, lambda: NOW_US),
                rules=self.rules,
                replay=self._replay,
                reports=NoReports(),
                finance=(
                    build_forecast_router(NoReports()),
                    build_exports_router(NoFiles()),
                    build_reconcile_router(NoReports()),
                    build_what_if_router(NoReports()),
                ),
                entries=self.entries,
                bodies=self.bodies,
                budgets=BudgetsService(MemoryBudgets(), OneSum(), _no_outlook, self._refresh, now_us=lambda: NOW_US),
                keys_spent=self._keys_spent,
                notices=NoticeService(self._notices, has_webhook=True, shares_per_mille=(800, 1000), forecast=True),
                audit=MemoryAudit(),
                engine=lambda: None,
            ),
            prefix=PREFIX,
        )
        self.app.include_router(build_own_requests_router(self.entries, self.ring, lambda: NOW_US))
        self.client = TestClient(self.app, raise_server_exceptions=True)

    async def start(self) -> "AdminRig":
        for role in ROLES:
            team = "red" if role == "lead" else None
            await self.keys.create(NewKey(name=role, role=role, team=team), author="test")
        await self._refresh()
        return self

    async def _notices(self) -> NoticeState:
        return self.told

    async def _keys_spent(self) -> list[KeySpent]:
        return self.spent_by_key

    async def _refresh(self) -> None:
        self.ring.replace(self.keys.ring(), await self.secrets.replaced())

    async def _replay(self, document: RulesDocument, since_us: int | None, until_us: int | None) -> ReplayResult:
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


def _no_outlook(days: DailyHistory, budget: int, today: date) -> BudgetBurn | None:
    return None


class _Silent:
    def settled(self, entry: Entry) -> None: ...

    def unclassified(self) -> None: ...

    def attempt_failed(self, candidate: object, error: object) -> None: ...
