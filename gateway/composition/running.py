"""One worker's gateway while it runs: what starts and stops with it, and what it reloads while serving.

wiring.py puts it together; it opens nothing itself.
"""

import asyncio
import logging
import os
import signal
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace

from prometheus_client import CollectorRegistry
from sqlalchemy.ext.asyncio import AsyncEngine

from backends.protocol import Backend
from classifier.protocol import Classifier
from gateway.access.keys import KeyRing
from gateway.access.rotation import Overlaps
from gateway.batches.runner import BatchRunner
from gateway.clock import PatientClock, now_us
from gateway.composition.chores import Chore, lasting
from gateway.composition.deployment import Deployment
from gateway.composition.engine_monitor import watch_health
from gateway.composition.kept_answers import KeptAnswers
from gateway.composition.key_limits import limits_of_keys, strict_budgets
from gateway.composition.sharing import Sharing
from gateway.composition.watching import Watching
from gateway.config.engine_curve import MeasuredEngine, load_engine_curve
from gateway.config.rents import present_rents
from gateway.config.settings import LOCAL_BACKEND
from gateway.errors import BreakevenError, DatabaseDown, StateError
from gateway.instants import DAY_US, HOUR_US
from gateway.kept_answers.body_keeper import BodyKeeper
from gateway.kept_answers.idempotency import Idempotency
from gateway.learning.classifier_versions import ClassifierVersions
from gateway.learning.classifier_watch import ClassifierWatch
from gateway.learning.implied_feedback import ImpliedFeedback
from gateway.learning.judge_model import judge_problem
from gateway.learning.shared_versions import SharedVersions
from gateway.ledger.adoption import adopt_abandoned
from gateway.ledger.directories import Claim
from gateway.ledger.journal import Journal
from gateway.ledger.remote_sink import RemoteSink
from gateway.ledger.shipper import Shipper
from gateway.limits.budget_keeper import BudgetKeeper, carry_unshipped
from gateway.limits.counters import RENEW_SECONDS
from gateway.limits.openings import by_budget
from gateway.notices.watch import BudgetNotices
from gateway.pipeline import Pipeline
from gateway.process.change_watch import ChangeWatch
from gateway.process.file_watch import FileWatch
from gateway.process.tasks import end_tasks
from gateway.routing.rules import RulesDocument
from gateway.routing.snapshot import Snapshot
from gateway.rulebook.catalogue import profiles
from gateway.rulebook.service import RulesService
from gateway.rulebook.watch import RuleWatch
from gateway.storage.later_work import LaterWork
from gateway.storage.retention import apply_retention
from gateway.storage.sql.stores import SqlStores
from gateway.telemetry.fleet_metrics import WRITE_SECONDS, FleetRegistry
from gateway.telemetry.metrics import Metrics
from gateway.upstreams.shared_prefixes import SharedWarmPrefixes

log = logging.getLogger(__name__)
SHIP_AT_STOP_SECONDS = 20.0
ADOPT_SECONDS = 30.0
RETENTION_SECONDS = 3600.0
FEEDBACK_SECONDS = 15.0
RULES_SECONDS = 30.0
EXPLORED_SECONDS = 0.5
NOTICES_SECONDS = 30.0
OVERLAPS_SECONDS = 10.0
KEPT_SECONDS = 60.0
LATER_WORK_SECONDS = 10.0
SHADOWS_AT_STOP_SECONDS = 10.0
BATCHES_AT_STOP_SECONDS = 10.0
BODIES_AT_STOP_SECONDS = 5.0
BLIND = "keys and rules cannot be read from the database, the last known ones stay in force; the log says why"
BEHIND = "the classifier in force elsewhere cannot be used here, and an earlier one decides; the log says why"
UNSHARED = (
    "Redis cannot be used: keys with a budget are refused once what their worker holds is spent; the log says why"
)
SLOW_DISK = "the journal's disk is slow: a sync takes {:.0f} ms, and the end of every answer waits for one"
UNSHIPPED = "the database takes no entries, and {:,} wait in the journal; the log says why"


@dataclass(slots=True)
class Gateway:
    """One worker process. Call `start` before the first request, `stop` after the last."""

    deployment: Deployment
    database: AsyncEngine
    stores: SqlStores
    key_ring: KeyRing
    rules: RulesService
    journal: Journal
    sink: RemoteSink
    shipper: Shipper
    bodies: BodyKeeper
    batches: BatchRunner | None
    pipeline: Pipeline
    metrics: Metrics
    claim: Claim
    budgets: BudgetKeeper
    notices: BudgetNotices | None
    idempotency: Idempotency
    sharing: Sharing
    kept: KeptAnswers
    watching: Watching
    watch: ChangeWatch
    exposition: CollectorRegistry
    versions: ClassifierVersions
    shared_versions: SharedVersions
    versions_watch: FileWatch
    classifier_watch: ClassifierWatch
    implied: ImpliedFeedback
    rule_watch: RuleWatch
    later_work: LaterWork
    retention_clock: PatientClock
    classifier: Classifier
    document: RulesDocument
    text_version: str = ""
    is_classifier_behind: bool = False
    tasks: list[asyncio.Task[None]] = field(default_factory=list[asyncio.Task[None]])
    refreshing: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def start(self) -> None:
        """Adopts what dead workers left, loads keys and rules, and starts the background work."""
        await self._adopt_abandoned()
        await self.watch.look()
        await self.stores.rents.keep(present_rents(self.deployment.settings), now_us() // HOUR_US)
        # So that the ledger includes what died here before anything is leased.
        if not await self.shipper.drain(SHIP_AT_STOP_SECONDS):
            await carry_unshipped(self.journal, self.pipeline.admission)
        await self.budgets.start()
        for problem in self._problems_of_judge():
            log.warning("%s", problem)
        await self.rule_watch.start()
        await self.watch.catch_up()  # the above took time: a key revoked meanwhile is refused from the first request on
        self.tasks = [asyncio.create_task(lasting(name, work), name=name) for name, work in self._background().items()]

    async def stop(self) -> None:
        """Ships what is settled and closes everything; what cannot be shipped is shipped at the next start."""
        await self.idempotency.aclose()
        if self.batches is not None:
            await self.batches.stop(BATCHES_AT_STOP_SECONDS)
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
        """Loads keys, budgets, rules and the classifier as they are in the database now."""
        async with self.refreshing:  # an earlier reading of the database must not be applied later
            # In this order: a secret replaced between the two readings is in both, never in neither.
            records = await self.stores.keys.records()
            replaced, has_litellms = await self.stores.secrets.replaced(), await self.stores.keys.has_litellms()
            limits = limits_of_keys(await self.stores.keys.limits(), self.deployment.shared_limits)
            strict = strict_budgets(await self.stores.budgets.budgets())
            openings = by_budget(await self.stores.openings.recent())
            admission = self.pipeline.admission
            admission.openings, admission.limits, admission.strict = openings, limits, strict
            self.key_ring.replace(records, replaced, has_litellms=has_litellms)  # no key is known before its limits are
            await self.rules.refresh()
            await self._follow_classifier()

    async def _follow_classifier(self) -> None:
        try:
            if await self.shared_versions.follow():
                self._use_classifier()
            self.is_classifier_behind = False
        except DatabaseDown:
            raise
        except (OSError, StateError):
            if not self.is_classifier_behind:
                log.exception("the classifier that another replica chose cannot be taken over; the last one stays")
            self.is_classifier_behind = True

    def _use_classifier(self) -> None:
        """Applies what this home's files say is in force."""
        self.classifier = self.versions.open()
        self.apply(self.document, self.text_version)

    async def take_over(self) -> None:
        """Something was changed through this process: apply it, and notify the others."""
        self.watch.wake()
        await self.refresh()

    def apply(self, document: RulesDocument, text_version: str) -> None:
        """Applies these rules from the next request on; requests in progress keep those they were admitted with."""
        self.document, self.text_version = document, text_version
        models = self.deployment.catalogue.models(document)
        self.pipeline.classifier = self.classifier.bind(profiles(models))
        self.pipeline.snapshot = self.snapshot_at(now_us())
        self.watch.wake()

    def use_curve(self, curve: MeasuredEngine) -> None:
        """Applies a newly measured engine curve from the next request on."""
        facts = self.deployment.table.facts
        if LOCAL_BACKEND in facts:
            speed = curve.speed(self.deployment.settings.engine.gpu_hour_pico_usd)
            facts[LOCAL_BACKEND] = replace(facts[LOCAL_BACKEND], speed=speed)
            self.deployment = replace(self.deployment, curve=curve)
            self.pipeline.snapshot = self.snapshot_at(now_us())

    async def forget(self) -> None:
        """Deletes what `retention` says is old enough."""
        kept, now = self.deployment.settings.retention, self.retention_clock()
        await apply_retention(
            self.database,
            requests_days=kept.requests_days,
            bodies_days=kept.bodies_days,
            now_us=now,
        )
        await self.stores.batches.forget(now, self.deployment.settings.batches.keep_days * DAY_US)

    def problems(self) -> list[str]:
        """What keeps this process from serving, in sentences; empty if nothing does."""
        refused = self.journal.refusal()
        return self._problems_of_models() + ([refused] if refused is not None else [])

    def _problems_of_models(self) -> list[str]:
        health = self.pipeline.upstreams.health
        usable = {one.backend for one in self.pipeline.snapshot.candidates.values() if not one.is_simulated}
        if not usable:
            return ["there is no model: enable the engine or set a provider's key"]
        if usable <= {LOCAL_BACKEND} and LOCAL_BACKEND in self.pipeline.upstreams.starting:
            return ["the engine is still loading"]
        down = {name for name in usable if (one := health.get(name)) is not None and not one.is_healthy}
        return [f"no backend is up: {', '.join(sorted(down))}"] if down == usable else []

    def warnings(self) -> list[str]:
        """Problems that do not keep this process from serving, in sentences that anyone may read."""
        upstreams, now = self.pipeline.upstreams, self.pipeline.monotonic()
        warnings = self.rules.warnings() + upstreams.warnings(now)
        warnings += upstreams.failing(self.pipeline.snapshot.candidates.values(), now)
        if self.watch.is_blind:
            warnings.append(BLIND)
        if self.is_classifier_behind:
            warnings.append(BEHIND)
        if self.budgets.is_down:
            warnings.append(UNSHARED)
        if self.shipper.is_failing:
            warnings.append(UNSHIPPED.format(self.journal.unshipped_entries))
        warnings += self._problems_of_judge()
        if (slow := self.journal.slow_sync_seconds) is not None:
            warnings.append(SLOW_DISK.format(slow * 1000))
        return warnings

    def _problems_of_judge(self) -> list[str]:
        judge = self.deployment.settings.shadow_calls.asked_judge
        problem = None if judge is None else judge_problem(judge, self.pipeline.snapshot)
        return [] if problem is None else [problem]

    def _background(self) -> Mapping[str, Callable[[], Awaitable[object]]]:
        """What runs besides the requests, by task name."""
        chores = (
            Chore("adopting journals", ADOPT_SECONDS, self._adopt_abandoned),
            Chore("retention", RETENTION_SECONDS, self.forget),
            Chore("feedback", FEEDBACK_SECONDS, self.classifier_watch.look),
            Chore("evidence", FEEDBACK_SECONDS, self.implied.flush),
            Chore("places of requests", RENEW_SECONDS, self.sharing.counters.renew),
            Chore("overlaps of secrets", OVERLAPS_SECONDS, Overlaps(self.key_ring, self.stores.secrets).look),
            Chore("rules' traffic", RULES_SECONDS, self.rule_watch.look),
            Chore("what exploration has cost", EXPLORED_SECONDS, self.rule_watch.share),
            Chore("forgetting kept responses", KEPT_SECONDS, self.kept.forget),
            Chore("what the schema left to be done", LATER_WORK_SECONDS, self.later_work.do),
        )
        work: dict[str, Callable[[], Awaitable[object]]] = {
            "shipper": self.shipper.run,
            "changes": self.watch.run,
            "news": self.watch.listen,
            "own news": self.watch.tell,
            "turn": self._turn_for_ever,
            "bodies": self.bodies.run,
            "budgets": self.budgets.run,
            "budgets of end users": self.budgets.read_end_users,
            "health": lambda: watch_health(self._monitored(), self.pipeline.upstreams),
            **{chore.name: chore.run for chore in chores},
        }
        if self.batches is not None:
            work["batches"] = self.batches.run
        if self.notices is not None:
            work["notices"] = Chore("telling of budgets", NOTICES_SECONDS, self.notices.look).run
        if isinstance(self.pipeline.warm, SharedWarmPrefixes):
            work["prefixes"] = self.pipeline.warm.run
        return work

    def snapshot_at(self, at_us: int) -> Snapshot:
        """Everything that decides, with the prices of that moment."""
        assert self.pipeline.classifier is not None
        return self.deployment.catalogue.snapshot(
            self.document,
            self.deployment.prices,
            classifier_version=self.pipeline.classifier.version,
            at_us=at_us,
            text_version=self.text_version,
        )

    def _monitored(self) -> dict[str, Backend]:
        """Our own backends and those that report load; hosted ones are watched only by their breakers."""
        own = {name for name, facts in self.deployment.table.facts.items() if facts.speed is not None}
        own |= {name for name, block in self.deployment.settings.backends.items() if block.health_from != "models"}
        return {name: backend for name, backend in self.pipeline.backends.items() if name in own}

    async def _adopt_abandoned(self) -> None:
        """Ships the journals of workers that died and were not restarted."""
        directory = self.deployment.home.journal_directory
        await adopt_abandoned(directory, self.sink, on_failure=stop_process, seconds_each=SHIP_AT_STOP_SECONDS)

    async def _turn_for_ever(self) -> None:
        """Applies what changes with time, and files written by other processes of this replica."""
        while True:
            await asyncio.sleep(WRITE_SECONDS)
            try:
                if self.deployment.curve_watch.has_changed():
                    self.use_curve(load_engine_curve(self.deployment.home.curve_file))
                if self.versions_watch.has_changed():
                    self._use_classifier()
                self.pipeline.priced_at(now_us())  # requests do this themselves, pages do not
            except (OSError, BreakevenError):
                log.exception(
                    "cannot take over a new throughput curve or classifier; the next try is when its file changes"
                )
            if isinstance(self.exposition, FleetRegistry):
                self.exposition.publish()


def stop_process(error: OSError) -> None:
    """The journal's disk failed, so nothing more may be accepted: ends this process in order; see docs/ledger.md."""
    log.critical("the journal cannot be synced (%s); stopping, because nothing more could be booked", error)
    os.kill(os.getpid(), signal.SIGTERM)
