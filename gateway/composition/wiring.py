"""The composition root: the one place that names concrete stores, backends and classifiers and puts them together."""

import logging
import random
import time
from collections.abc import Callable
from contextlib import AsyncExitStack

from prometheus_client import CollectorRegistry
from sqlalchemy.ext.asyncio import AsyncEngine

from classifier.protocol import Classifier
from gateway.access.keys import KeyRing
from gateway.clock import PatientClock, now_us, unstepped_seconds
from gateway.composition.batches import bounds_of, open_batches
from gateway.composition.child_secrets import writer_environment
from gateway.composition.deployment import Deployment, require_clients
from gateway.composition.kept_answers import open_kept_answers
from gateway.composition.notices import open_notices
from gateway.composition.running import Gateway, stop_process
from gateway.composition.sharing import Sharing, open_sharing
from gateway.composition.watching import open_watching
from gateway.config.home import Home
from gateway.config.settings import LOCAL_BACKEND, ShadowSettings
from gateway.errors import StateError
from gateway.kept_answers.body_keeper import BodyKeeper
from gateway.kept_answers.idempotency import Idempotency
from gateway.kept_answers.kept_conversations import KeptConversations
from gateway.kept_answers.kept_responses import KeptResponses
from gateway.kept_answers.response_cache import ResponseCache
from gateway.learning.classifier_versions import ClassifierVersions
from gateway.learning.classifier_watch import ClassifierWatch
from gateway.learning.implied_feedback import ImpliedFeedback
from gateway.learning.judge_calls import JudgeCalls
from gateway.learning.shadow import ShadowCalls
from gateway.learning.shared_versions import SharedVersions
from gateway.ledger.directories import Claim
from gateway.ledger.journal import Journal
from gateway.ledger.opening import open_journal
from gateway.ledger.remote_sink import RemoteSink
from gateway.ledger.shipper import Shipper
from gateway.limits.admission import Admission
from gateway.limits.budget_keeper import BudgetKeeper, CountingSink
from gateway.limits.spending import Spending
from gateway.limits.treasury import Treasury
from gateway.pipeline import Pipeline
from gateway.process.change_watch import ChangeWatch
from gateway.process.file_watch import FileWatch
from gateway.request.run import Observer
from gateway.routing.fallback import RetryPolicy
from gateway.rulebook.catalogue import profiles
from gateway.rulebook.service import RulesService
from gateway.rulebook.state import ExplorationSpend
from gateway.rulebook.watch import RuleWatch
from gateway.storage.database import migrate_engine, open_database
from gateway.storage.later_work import LaterWork
from gateway.storage.pepper import require_pepper
from gateway.storage.sql.classifier import SqlClassifier
from gateway.storage.sql.stores import SqlStores, open_stores
from gateway.stores import FeedbackStore
from gateway.telemetry.fleet_metrics import FleetRegistry
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.rules_in_force import RulesInForce
from gateway.upstreams.load import Upstreams
from gateway.upstreams.shared_prefixes import SharedWarmPrefixes
from gateway.upstreams.starting import Starting
from gateway.upstreams.warm_prefixes import MemoryWarmPrefixes, WarmPrefixes

log = logging.getLogger(__name__)


async def open_gateway(deployment: Deployment, *, workers: int = 1) -> Gateway:
    """Opens the database and the journal and puts everything together; nothing runs yet.

    `workers` is the number of such processes in this replica. Raises StateError, after closing what was opened.
    """
    require_clients(deployment.settings)
    async with AsyncExitStack() as opened:
        database = open_database(deployment.database_url)
        opened.push_async_callback(database.dispose)
        await migrate_engine(database)
        await require_pepper(database, deployment.home)
        await _renew_copies(deployment.home, database)
        claim, journal = open_journal(deployment.home.journal_directory, on_failure=stop_process)
        opened.callback(claim.release)
        opened.push_async_callback(journal.aclose)
        gateway = _put_together(deployment, database, claim, journal, workers=workers)
        opened.pop_all()
    return gateway


async def _renew_copies(home: Home, database: AsyncEngine) -> None:
    """Brings this home's copies of what was learned and promoted up to what the database has, damaged ones too."""
    try:
        await SharedVersions(ClassifierVersions(home.classifier_directory), SqlClassifier(database)).follow()
    except (OSError, StateError) as error:
        log.warning("the classifier in force is looked for in this home alone: %s", error)


def _put_together(
    deployment: Deployment, database: AsyncEngine, claim: Claim, journal: Journal, *, workers: int
) -> Gateway:
    home, settings = deployment.home, deployment.settings
    stores = open_stores(database, home)
    sink = RemoteSink(deployment.database_url, environment=writer_environment(deployment.settings))
    bodies = BodyKeeper(stores.bodies)
    key_ring = KeyRing(home.pepper())
    versions = ClassifierVersions(home.classifier_directory)
    versions_watch, classifier = FileWatch(versions.active_file), _classifier(versions, deployment)
    metrics = Metrics(journal)
    classifier_watch = _classifier_watch(stores, metrics)
    watching = open_watching(settings.telemetry.otlp_endpoint, metrics)
    kept = open_kept_answers(
        settings.redis,
        settings.kept_answers,
        home.turns_file,
        home.conversations_file,
        text_days=settings.retention.bodies_days,
    )
    sharing = open_sharing(settings.redis, home=home, journal=claim.path, workers=workers)
    admission = Admission(
        shared=deployment.shared_limits,
        shadow_pico_usd=settings.shadow_calls.budget_pico_usd if settings.shadow_calls.share else None,
        treasury=Treasury(sharing.counters),
        wait_seconds=settings.server.budget_wait_seconds,
    )
    pipeline = _pipeline(
        deployment,
        keys=key_ring,
        journal=journal,
        observer=watching.observer,
        classifier=classifier,
        admission=admission,
        responses=ResponseCache(kept.responses),
        kept_responses=KeptResponses(
            kept.turns,
            key_ring.conversation_secret,
            seconds=kept.turn_seconds,
            most_bytes=settings.server.max_body_megabytes << 20,
            most_added_bytes=settings.server.max_buffered_megabytes << 20,
        ),
        bodies=bodies,
        warm=MemoryWarmPrefixes() if sharing.prefixes is None else SharedWarmPrefixes(sharing.prefixes),
    )
    pipeline.kept_conversations = KeptConversations(
        kept.conversations,
        kept.locks,
        key_ring.conversation_secret,
        seconds=kept.conversation_seconds,
        most_bytes=settings.server.max_body_megabytes << 20,
    )
    pipeline.exploration = exploration = _exploration(pipeline, metrics)
    pipeline.implied = implied = _implied_feedback(stores, metrics)
    pipeline.shadows = _shadows(settings.shadow_calls, pipeline, stores.feedback, metrics)
    bounds, worker = bounds_of(settings), f"{home.replica_id()}/{claim.path.name}"
    watch, patient = _change_watch(stores, sharing, lambda: gateway), PatientClock()
    batches = open_batches(pipeline, stores, bounds, watch.catch_up, name=worker, clock=patient)
    gateway = Gateway(
        deployment=deployment,
        database=database,
        stores=stores,
        key_ring=key_ring,
        rules=_rules_service(stores, deployment, metrics, lambda: gateway),
        journal=journal,
        sink=sink,
        shipper=Shipper(journal, CountingSink(sink, admission)),
        bodies=bodies,
        batches=batches if bounds.at_once else None,
        retention_clock=patient,
        pipeline=pipeline,
        metrics=metrics,
        claim=claim,
        budgets=BudgetKeeper(
            admission.treasury,
            Spending(stores.reports, admission, now_us),
            stores.end_users,
            stores.adjustments.newest,
        ),
        notices=open_notices(settings, stores, lambda: admission.limits, metrics),
        idempotency=Idempotency(kept.idempotency, lambda credential: key_ring.authenticate(credential, now_us()).id),
        sharing=sharing,
        kept=kept,
        watching=watching,
        watch=watch,
        exposition=_exposition(metrics, deployment, claim, workers=workers),
        versions=versions,
        shared_versions=SharedVersions(versions, stores.classifier),
        versions_watch=versions_watch,
        classifier_watch=classifier_watch,
        implied=implied,
        rule_watch=RuleWatch(
            stores.entries, pipeline.rule_state, exploration, lambda: pipeline.snapshot, now_us, sharing.counters
        ),
        later_work=LaterWork(deployment.database_url),
        classifier=classifier,
        document=deployment.rules,
    )
    pipeline.snapshot_at = gateway.snapshot_at
    return gateway


def _classifier(versions: ClassifierVersions, deployment: Deployment) -> Classifier:
    return versions.open().bind(profiles(deployment.catalogue.models(deployment.rules)))


def _pipeline(
    deployment: Deployment,
    *,
    keys: KeyRing,
    journal: Journal,
    observer: Observer,
    classifier: Classifier,
    admission: Admission,
    responses: ResponseCache,
    kept_responses: KeptResponses,
    bodies: BodyKeeper,
    warm: WarmPrefixes,
) -> Pipeline:
    table = deployment.table
    return Pipeline(
        keys=keys,
        backends=table.adapters,
        upstreams=Upstreams(
            shelves=table.shelves, starting=Starting(table.facts.keys() & {LOCAL_BACKEND}), jitter=random.random
        ),
        ledger=journal,
        observer=observer,
        snapshot=deployment.catalogue.snapshot(
            deployment.rules, deployment.prices, classifier_version=classifier.version, at_us=now_us()
        ),
        classifier=classifier,
        admission=admission,
        drains=frozenset(table.drains),
        responses=responses,
        kept_responses=kept_responses,
        timeouts=table.timeouts,
        prompt_caches=table.prompt_caches,
        marks_prompts=any(cache.marks == "auto" for cache in table.prompt_caches.values()),
        retry_policy=RetryPolicy(**deployment.settings.fallback.model_dump()),
        bodies=bodies,
        warm=warm,
        records_end_users=deployment.settings.record_end_users,
    )


def _classifier_watch(stores: SqlStores, metrics: Metrics) -> ClassifierWatch:
    watch = ClassifierWatch(stores.feedback, stores.entries)
    metrics.tell(watch.settled)
    watch.show(metrics)
    return watch


def _exploration(pipeline: Pipeline, metrics: Metrics) -> ExplorationSpend:
    exploration = ExplorationSpend(pipeline.rule_state, now_us)
    metrics.tell(exploration.settled)
    return exploration


def _implied_feedback(stores: SqlStores, metrics: Metrics) -> ImpliedFeedback:
    implied = ImpliedFeedback(stores.feedback, now_us, unstepped_seconds)
    metrics.tell(implied.settled)
    return implied


def _rules_service(
    stores: SqlStores, deployment: Deployment, metrics: Metrics, gateway: Callable[[], Gateway]
) -> RulesService:
    rules = RulesService(
        stores.rules,
        deployment.catalogue,
        lambda document, text_version: gateway().apply(document, text_version),
        now_us=now_us,
        file=deployment.home.rules_file,
        taken_over=metrics.rules_taken_over,
    )
    metrics.registry.register(RulesInForce(rules))
    return rules


def _change_watch(stores: SqlStores, sharing: Sharing, gateway: Callable[[], Gateway]) -> ChangeWatch:
    return ChangeWatch(
        sharing.news,
        head=stores.audit.head,
        refresh=lambda: gateway().refresh(),
        follow_file=lambda: gateway().rules.refresh(),
        monotonic=time.monotonic,
    )


def _exposition(metrics: Metrics, deployment: Deployment, claim: Claim, *, workers: int) -> CollectorRegistry:
    """What `/metrics` shows: this process or, with several workers, the whole replica."""
    if workers == 1:
        return metrics.registry
    return FleetRegistry(metrics.registry, deployment.home.metrics_directory, claim.path.name)


def _shadows(
    settings: ShadowSettings, pipeline: Pipeline, feedback: FeedbackStore, metrics: Metrics
) -> ShadowCalls | None:
    if not settings.share:
        return None
    judge = None
    if settings.judge is not None:
        judge = JudgeCalls(
            settings.judge,
            pipeline.admission,
            pipeline.serve_apart,
            feedback,
            priced_at=pipeline.priced_at,
            now_us=now_us,
            monotonic=time.monotonic,
            told=metrics.pair_judged,
        )
    return ShadowCalls(
        settings.share,
        pipeline.admission,
        pipeline.serve_apart,
        feedback,
        priced_at=pipeline.priced_at,
        now_us=now_us,
        monotonic=time.monotonic,
        judge=judge,
    )
