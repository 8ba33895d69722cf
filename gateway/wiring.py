"""The composition root: the one place that names concrete stores, backends and classifiers and puts them together."""

import asyncio
import logging
import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy.ext.asyncio import AsyncEngine

from backends.protocol import Backend
from classifier.load import load_artefact
from classifier.protocol import Classifier
from gateway.admission import Admission, Limits, parse_limits
from gateway.budget_keeper import BudgetKeeper, CountingSink
from gateway.catalogue import profiles
from gateway.config.engine_curve import MeasuredEngine
from gateway.config.settings import LOCAL_BACKEND
from gateway.deployment import Deployment
from gateway.engine_monitor import watch_health
from gateway.idempotency import Idempotency
from gateway.keys import KeyRing
from gateway.ledger.adoption import adopt_abandoned
from gateway.ledger.directories import Claim, claim_directory
from gateway.ledger.journal import Journal
from gateway.ledger.remote_sink import RemoteSink
from gateway.ledger.shipper import Shipper
from gateway.load import Upstreams
from gateway.memory_idempotency import MemoryIdempotency
from gateway.metrics import Metrics
from gateway.pipeline import Pipeline
from gateway.routing.fallback import RetryPolicy
from gateway.routing.rules import RulesDocument
from gateway.routing.snapshot import Snapshot
from gateway.rules_service import RulesService
from gateway.spending import Spending
from gateway.storage.database import migrate_engine, open_database
from gateway.storage.sql_keys import SqlKeyStore
from gateway.storage.sql_ledger import SqlLedger
from gateway.storage.sql_reports import SqlReports
from gateway.storage.sql_rules import SqlRulesStore

log = logging.getLogger(__name__)
REFRESH_SECONDS = 0.5
PRICES_SECONDS = 60.0
SHIP_AT_STOP_SECONDS = 20.0
ADOPT_SECONDS = 30.0


def now_us() -> int:
    """Microseconds since the epoch."""
    return time.time_ns() // 1000


@dataclass(slots=True)
class Gateway:
    """One worker process. `start` it before the first request, `stop` it after the last."""

    deployment: Deployment
    database: AsyncEngine
    keys: SqlKeyStore
    key_ring: KeyRing
    rules: RulesService
    ledger: SqlLedger
    journal: Journal
    sink: RemoteSink
    shipper: Shipper
    pipeline: Pipeline
    metrics: Metrics
    claim: Claim
    budgets: BudgetKeeper
    idempotency: Idempotency
    classifier: Classifier
    document: RulesDocument
    text_version: str = ""
    tasks: list[asyncio.Task[None]] = field(default_factory=list[asyncio.Task[None]])

    async def start(self) -> None:
        """Take over what dead workers left, load keys and rules, and begin the background work."""
        await self._adopt_abandoned()
        await self.refresh()
        await self.budgets.step()
        self.tasks = [
            asyncio.create_task(self.shipper.run(), name="shipper"),
            asyncio.create_task(self._refresh_for_ever(), name="refresh"),
            asyncio.create_task(self._adopt_for_ever(), name="adopt"),
            asyncio.create_task(self.budgets.run(), name="budgets"),
            asyncio.create_task(watch_health(self._monitored(), self.pipeline.upstreams), name="health"),
        ]

    async def stop(self) -> None:
        """Ship what is settled and close everything; what could not be shipped is shipped at the next start."""
        await self.idempotency.aclose()
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        if not await self.shipper.drain(SHIP_AT_STOP_SECONDS):
            log.warning("%d entries stay in the journal for the next start", self.journal.unshipped_entries)
        await self.sink.aclose()
        await self.journal.aclose()
        self.claim.release()
        for backend in self.pipeline.backends.values():
            await backend.aclose()
        await self.database.dispose()

    async def refresh(self) -> None:
        """Keys and rules as the database has them now."""
        self.key_ring.replace(await self.keys.records())
        self.pipeline.admission.limits = {
            key: _limits(key, raw) for key, raw in (await self.keys.limits()).items() if raw
        }
        await self.rules.refresh()

    def apply(self, document: RulesDocument, text_version: str) -> None:
        """Decide by these rules from the next request on; a request under way keeps the ones it was admitted with."""
        self.document, self.text_version = document, text_version
        models = self.deployment.catalogue.models(document)
        self.pipeline.classifier = self.classifier.bind(profiles(models))
        self.pipeline.snapshot = self._snapshot()

    def use_curve(self, curve: MeasuredEngine) -> None:
        """Decide by a newly measured engine from the next request on."""
        facts = self.deployment.table.facts
        if LOCAL_BACKEND in facts:
            speed = curve.speed(self.deployment.settings.engine.gpu_hour_pico_usd)
            facts[LOCAL_BACKEND] = replace(facts[LOCAL_BACKEND], speed=speed)
            self.deployment = replace(self.deployment, curve=curve)
            self.pipeline.snapshot = self._snapshot()

    def problems(self) -> list[str]:
        """What keeps this process from serving, in sentences; empty when nothing does."""
        health = self.pipeline.upstreams.health
        usable = {one.backend for one in self.pipeline.snapshot.candidates.values() if not one.is_simulated}
        if not usable:
            return ["there is no model: enable the engine or set a provider's key"]
        down = {name for name in usable if (one := health.get(name)) is not None and not one.is_healthy}
        return [f"no backend is up: {', '.join(sorted(down))}"] if down == usable else []

    def _snapshot(self) -> Snapshot:
        assert self.pipeline.classifier is not None
        return self.deployment.catalogue.snapshot(
            self.document,
            self.deployment.prices,
            classifier_version=self.pipeline.classifier.version,
            at_us=now_us(),
            text_version=self.text_version,
        )

    def _monitored(self) -> dict[str, Backend]:
        """Backends of our own report their load; hosted ones are watched by their breakers alone."""
        own = {name for name, facts in self.deployment.table.facts.items() if facts.speed is not None}
        return {name: backend for name, backend in self.pipeline.backends.items() if name in own}

    async def _adopt_abandoned(self) -> None:
        directory = self.deployment.home.journal_directory
        await adopt_abandoned(directory, self.ledger, on_failure=stop_process, seconds_each=SHIP_AT_STOP_SECONDS)

    async def _adopt_for_ever(self) -> None:
        """A worker that died and was not started again leaves its journal to the others."""
        while True:
            await asyncio.sleep(ADOPT_SECONDS)
            await self._adopt_abandoned()

    async def _refresh_for_ever(self) -> None:
        priced_at = time.monotonic()
        while True:
            await asyncio.sleep(REFRESH_SECONDS)
            try:
                await self.refresh()
                if time.monotonic() - priced_at >= PRICES_SECONDS:  # off-peak hours begin and end
                    self.pipeline.snapshot, priced_at = self._snapshot(), time.monotonic()
            except Exception:
                log.exception("cannot read keys and rules from the database; the last known ones stay in force")


async def open_gateway(deployment: Deployment) -> Gateway:
    """Open the database and the journal and put everything together; nothing runs yet. Raises StateError."""
    database = open_database(deployment.database_url)
    await migrate_engine(database)
    claim = claim_directory(deployment.home.journal_directory)
    journal = Journal.open(claim.path, on_failure=stop_process)
    ledger, sink = SqlLedger(database), RemoteSink(deployment.database_url)
    pepper = deployment.home.pepper()
    key_ring = KeyRing(pepper)
    classifier = load_artefact().bind(profiles(deployment.catalogue.models(deployment.rules)))
    metrics = Metrics(journal)
    table = deployment.table
    admission = Admission()
    spending = Spending(SqlReports(database), admission, now_us)
    pipeline = Pipeline(
        keys=key_ring,
        backends=table.adapters,
        upstreams=Upstreams(shelves=table.shelves),
        ledger=journal,
        observer=metrics,
        snapshot=deployment.catalogue.snapshot(
            deployment.rules, deployment.prices, classifier_version=classifier.version, at_us=now_us()
        ),
        classifier=classifier,
        admission=admission,
        drains=frozenset(table.drains),
        timeouts=table.timeouts,
        prompt_caches=table.prompt_caches,
        retry_policy=RetryPolicy(**deployment.settings.fallback.model_dump()),
    )

    def apply(document: RulesDocument, text_version: str) -> None:
        gateway.apply(document, text_version)

    gateway = Gateway(
        deployment=deployment,
        database=database,
        keys=SqlKeyStore(database, pepper),
        key_ring=key_ring,
        rules=RulesService(
            SqlRulesStore(database), deployment.catalogue, apply, now_us=now_us, file=deployment.home.rules_file
        ),
        ledger=ledger,
        journal=journal,
        sink=sink,
        shipper=Shipper(journal, CountingSink(sink, admission)),
        pipeline=pipeline,
        metrics=metrics,
        claim=claim,
        budgets=BudgetKeeper(admission.treasury, spending),
        idempotency=Idempotency(MemoryIdempotency(), lambda credential: key_ring.authenticate(credential, now_us()).id),
        classifier=classifier,
        document=deployment.rules,
    )
    return gateway


def _limits(key_id: str, stored: Mapping[str, Any]) -> Limits:
    """Limits that cannot be read stop the key's spending rather than free it."""
    try:
        return parse_limits(stored)
    except (ValueError, ArithmeticError) as error:
        log.error("the limits of key %s cannot be read (%s); it may spend nothing", key_id, error)
        return Limits(budget_usd="0")


def stop_process(error: OSError) -> None:
    """The journal's disk failed: nothing may be accepted any more. Ends this process in order; see docs/ledger.md."""
    log.critical("the journal cannot be synced (%s); stopping, because nothing more could be booked", error)
    os.kill(os.getpid(), signal.SIGTERM)
