"""The composition root: the one place that names concrete stores, backends and classifiers and puts them together."""

import asyncio
import logging
import os
import signal
import time
from dataclasses import dataclass, field, replace

from prometheus_client import CollectorRegistry
from sqlalchemy.ext.asyncio import AsyncEngine

from backends.protocol import Backend
from classifier.protocol import Classifier
from gateway.admission import Admission
from gateway.body_keeper import BodyKeeper
from gateway.budget_keeper import BudgetKeeper, CountingSink
from gateway.catalogue import profiles
from gateway.change_watch import ChangeWatch
from gateway.chores import Chore
from gateway.classifier_versions import ClassifierVersions
from gateway.classifier_watch import ClassifierWatch
from gateway.config.engine_curve import MeasuredEngine, load_engine_curve
from gateway.config.settings import LOCAL_BACKEND
from gateway.deployment import Deployment
from gateway.engine_monitor import watch_health
from gateway.errors import BreakevenError
from gateway.file_watch import FileWatch
from gateway.fleet_metrics import WRITE_SECONDS, FleetRegistry
from gateway.idempotency import Idempotency
from gateway.implied_feedback import ImpliedFeedback
from gateway.kept_answers import KeptAnswers, open_kept_answers
from gateway.key_limits import limits_of_keys, strict_budgets
from gateway.keys import KeyRing
from gateway.ledger.adoption import adopt_abandoned
from gateway.ledger.directories import Claim
from gateway.ledger.journal import Journal
from gateway.ledger.opening import open_journal
from gateway.ledger.remote_sink import RemoteSink
from gateway.ledger.shipper import Shipper
from gateway.load import Upstreams
from gateway.metrics import Metrics
from gateway.pipeline import Pipeline
from gateway.response_cache import ResponseCache
from gateway.routing.fallback import RetryPolicy
from gateway.routing.rules import RulesDocument
from gateway.routing.snapshot import Snapshot
from gateway.rule_state import ExplorationSpend
from gateway.rule_watch import RuleWatch
from gateway.rules_service import RulesService
from gateway.shadow import ShadowBudget, ShadowCalls
from gateway.shared_prefixes import SharedWarmPrefixes
from gateway.sharing import Sharing, open_sharing
from gateway.spending import Spending
from gateway.storage.database import migrate_engine, open_database
from gateway.storage.retention import apply_retention
from gateway.storage.sql_audit import SqlAuditLog
from gateway.storage.sql_bodies import SqlBodies
from gateway.storage.sql_budgets import SqlBudgets
from gateway.storage.sql_entries import SqlEntries
from gateway.storage.sql_feedback import SqlFeedback
from gateway.storage.sql_keys import SqlKeyStore
from gateway.storage.sql_ledger import SqlLedger
from gateway.storage.sql_reports import SqlReports
from gateway.storage.sql_rules import SqlRulesStore
from gateway.tasks import end_tasks
from gateway.treasury import Treasury
from gateway.warm_prefixes import MemoryWarmPrefixes
from gateway.watching import Watching, open_watching

log = logging.getLogger(__name__)
PRICES_SECONDS = 60.0
SHIP_AT_STOP_SECONDS = 20.0
ADOPT_SECONDS = 30.0
RETENTION_SECONDS = 3600.0
FEEDBACK_SECONDS = 15.0
RULES_SECONDS = 30.0
SHADOWS_AT_STOP_SECONDS = 10.0
BODIES_AT_STOP_SECONDS = 5.0


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
    bodies: BodyKeeper
    pipeline: Pipeline
    metrics: Metrics
    claim: Claim
    budgets: BudgetKeeper
    idempotency: Idempotency
    sharing: Sharing
    kept: KeptAnswers
    watching: Watching
    watch: ChangeWatch
    exposition: CollectorRegistry
    curve_watch: FileWatch
    versions: ClassifierVersions
    versions_watch: FileWatch
    classifier_watch: ClassifierWatch
    implied: ImpliedFeedback
    rule_watch: RuleWatch
    classifier: Classifier
    document: RulesDocument
    text_version: str = ""
    tasks: list[asyncio.Task[None]] = field(default_factory=list[asyncio.Task[None]])
    refreshing: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def start(self) -> None:
        """Take over what dead workers left, load keys and rules, and begin the background work."""
        await self._adopt_abandoned()
        await self.watch.look()
        await self.shipper.drain(
            SHIP_AT_STOP_SECONDS
        )  # so that the books show what died here before anything is leased
        await self.budgets.start()
        if self.pipeline.shadows is not None:
            await self.pipeline.shadows.start(SqlReports(self.database))
        await self.rule_watch.start()
        self.tasks = [
            asyncio.create_task(self.shipper.run(), name="shipper"),
            asyncio.create_task(self.watch.run(), name="changes"),
            asyncio.create_task(self.watch.listen(), name="news"),
            asyncio.create_task(self._turn_for_ever(), name="turn"),
            asyncio.create_task(Chore("adopting journals", ADOPT_SECONDS, self._adopt_abandoned).run(), name="adopt"),
            asyncio.create_task(Chore("retention", RETENTION_SECONDS, self._forget).run(), name="retention"),
            asyncio.create_task(self.bodies.run(), name="bodies"),
            asyncio.create_task(Chore("feedback", FEEDBACK_SECONDS, self.classifier_watch.look).run(), name="feedback"),
            asyncio.create_task(Chore("evidence", FEEDBACK_SECONDS, self.implied.flush).run(), name="evidence"),
            asyncio.create_task(Chore("rules' traffic", RULES_SECONDS, self.rule_watch.look).run(), name="rules"),
            asyncio.create_task(self.budgets.run(), name="budgets"),
            asyncio.create_task(watch_health(self._monitored(), self.pipeline.upstreams), name="health"),
        ]
        if isinstance(self.pipeline.warm, SharedWarmPrefixes):
            self.tasks.append(asyncio.create_task(self.pipeline.warm.run(), name="prefixes"))

    async def stop(self) -> None:
        """Ship what is settled and close everything; what could not be shipped is shipped at the next start."""
        await self.idempotency.aclose()
        if self.pipeline.shadows is not None:
            await self.pipeline.shadows.drain(SHADOWS_AT_STOP_SECONDS)
        await end_tasks(self.tasks)
        if not await self.shipper.drain(SHIP_AT_STOP_SECONDS):
            log.warning("%d entries stay in the journal for the next start", self.journal.unshipped_entries)
        await self.bodies.drain(BODIES_AT_STOP_SECONDS)
        await self.budgets.stop()
        if isinstance(self.exposition, FleetRegistry):
            self.exposition.remove()
        await self.sharing.aclose()
        await self.kept.aclose()
        await self.watching.aclose()
        await self.sink.aclose()
        await self.journal.aclose()
        self.claim.release()
        for backend in self.pipeline.backends.values():
            await backend.aclose()
        await self.database.dispose()

    async def refresh(self) -> None:
        """Keys, budgets and rules as the database has them now."""
        async with self.refreshing:  # who read the database earlier must not apply it later
            self.key_ring.replace(await self.keys.records())
            self.pipeline.admission.limits = limits_of_keys(await self.keys.limits(), self.deployment.shared_limits)
            self.pipeline.admission.strict = strict_budgets(await SqlBudgets(self.database).budgets())
            await self.rules.refresh()

    async def take_over(self) -> None:
        """Something was changed through this process: take it over, and tell the others."""
        self.watch.wake()
        await self.refresh()

    def apply(self, document: RulesDocument, text_version: str) -> None:
        """Decide by these rules from the next request on; a request under way keeps the ones it was admitted with."""
        self.document, self.text_version = document, text_version
        models = self.deployment.catalogue.models(document)
        self.pipeline.classifier = self.classifier.bind(profiles(models))
        self.pipeline.snapshot = self._snapshot()
        self.watch.wake()

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
        """A worker that died and was not started again leaves its journal to the others."""
        directory = self.deployment.home.journal_directory
        await adopt_abandoned(directory, self.sink, on_failure=stop_process, seconds_each=SHIP_AT_STOP_SECONDS)

    async def _forget(self) -> None:
        kept = self.deployment.settings.retention
        await apply_retention(
            self.database, requests_days=kept.requests_days, bodies_days=kept.bodies_days, now_us=now_us()
        )

    async def _turn_for_ever(self) -> None:
        """What time alone changes, and what another process of this replica left in a file."""
        priced_at = time.monotonic()
        while True:
            await asyncio.sleep(WRITE_SECONDS)
            try:
                if self.curve_watch.has_changed():
                    self.use_curve(load_engine_curve(self.deployment.home.curve_file))
                if self.versions_watch.has_changed():
                    self.classifier = self.versions.open()
                    self.apply(self.document, self.text_version)
                if time.monotonic() - priced_at >= PRICES_SECONDS:  # off-peak hours begin and end
                    self.pipeline.snapshot, priced_at = self._snapshot(), time.monotonic()
                if isinstance(self.exposition, FleetRegistry):
                    self.exposition.write()
            except (OSError, BreakevenError):
                log.exception("cannot take over a new throughput curve or classifier, or leave metrics; tried again")


async def open_gateway(deployment: Deployment, *, workers: int = 1) -> Gateway:
    """Open the database and the journal and put everything together; nothing runs yet. Raises StateError.

    `workers` is how many such processes this replica runs.
    """
    database = open_database(deployment.database_url)
    await migrate_engine(database)
    claim, journal = open_journal(deployment.home.journal_directory, on_failure=stop_process)
    ledger, sink = SqlLedger(database), RemoteSink(deployment.database_url)
    bodies = BodyKeeper(SqlBodies(database, deployment.home.bodies_key()))
    pepper = deployment.home.pepper()
    key_ring = KeyRing(pepper)
    versions = ClassifierVersions(deployment.home.classifier_directory)
    versions_watch, frozen = FileWatch(versions.active_file), versions.open()
    classifier = frozen.bind(profiles(deployment.catalogue.models(deployment.rules)))
    metrics = Metrics(journal)
    classifier_watch = ClassifierWatch(SqlFeedback(database), SqlEntries(database))
    metrics.tell(classifier_watch.settled)
    classifier_watch.show(metrics)
    watching = open_watching(deployment.settings.telemetry.otlp_endpoint, metrics)
    table = deployment.table
    kept = open_kept_answers(deployment.settings.redis, deployment.settings.kept_answers)
    sharing = open_sharing(deployment.settings.redis, journal=claim.path, workers=workers)
    admission = Admission(
        shared=deployment.shared_limits,
        treasury=Treasury(sharing.counters),
        wait_seconds=deployment.settings.server.budget_wait_seconds,
    )
    spending = Spending(SqlReports(database), admission, now_us)
    pipeline = Pipeline(
        keys=key_ring,
        backends=table.adapters,
        upstreams=Upstreams(shelves=table.shelves),
        ledger=journal,
        observer=watching.observer,
        snapshot=deployment.catalogue.snapshot(
            deployment.rules, deployment.prices, classifier_version=classifier.version, at_us=now_us()
        ),
        classifier=classifier,
        admission=admission,
        drains=frozenset(table.drains),
        responses=ResponseCache(kept.responses),
        timeouts=table.timeouts,
        prompt_caches=table.prompt_caches,
        retry_policy=RetryPolicy(**deployment.settings.fallback.model_dump()),
        bodies=bodies,
        warm=MemoryWarmPrefixes() if sharing.prefixes is None else SharedWarmPrefixes(sharing.prefixes),
    )
    pipeline.exploration = exploration = ExplorationSpend(pipeline.rule_state, now_us, workers=workers)
    metrics.tell(exploration.settled)
    pipeline.implied = implied = ImpliedFeedback(SqlFeedback(database), now_us)
    metrics.tell(implied.settled)
    shadows = deployment.settings.shadow_calls
    if shadows.share:
        purse = ShadowBudget(shadows.budget_pico_usd // workers)
        pipeline.shadows = ShadowCalls(
            shadows.share, purse, pipeline.serve_apart, SqlFeedback(database), now_us=now_us, monotonic=time.monotonic
        )

    audit = SqlAuditLog(database)

    async def audit_head() -> int:
        newest = await audit.page(before=None, limit=1)
        return newest[0].sequence if newest else 0

    def apply(document: RulesDocument, text_version: str) -> None:
        gateway.apply(document, text_version)

    async def refresh() -> None:
        await gateway.refresh()

    async def follow_file() -> None:
        await gateway.rules.refresh()

    gateway = Gateway(
        deployment=deployment,
        database=database,
        keys=SqlKeyStore(database, pepper),
        key_ring=key_ring,
        rules=RulesService(
            SqlRulesStore(database),
            deployment.catalogue,
            apply,
            now_us=now_us,
            file=deployment.home.rules_file,
            taken_over=metrics.rules_taken_over,
        ),
        ledger=ledger,
        journal=journal,
        sink=sink,
        shipper=Shipper(journal, CountingSink(sink, admission)),
        bodies=bodies,
        pipeline=pipeline,
        metrics=metrics,
        claim=claim,
        budgets=BudgetKeeper(admission.treasury, spending),
        idempotency=Idempotency(kept.idempotency, lambda credential: key_ring.authenticate(credential, now_us()).id),
        sharing=sharing,
        kept=kept,
        watching=watching,
        watch=ChangeWatch(
            sharing.news, head=audit_head, refresh=refresh, follow_file=follow_file, monotonic=time.monotonic
        ),
        exposition=metrics.registry
        if workers == 1
        else FleetRegistry(metrics.registry, deployment.home.metrics_directory, claim.path.name),
        curve_watch=FileWatch(deployment.home.curve_file),
        versions=versions,
        versions_watch=versions_watch,
        classifier_watch=classifier_watch,
        implied=implied,
        rule_watch=RuleWatch(SqlEntries(database), pipeline.rule_state, exploration, lambda: pipeline.snapshot, now_us),
        classifier=classifier,
        document=deployment.rules,
    )
    return gateway


def stop_process(error: OSError) -> None:
    """The journal's disk failed: nothing may be accepted any more. Ends this process in order; see docs/ledger.md."""
    log.critical("the journal cannot be synced (%s); stopping, because nothing more could be booked", error)
    os.kill(os.getpid(), signal.SIGTERM)
