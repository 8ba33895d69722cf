"""The deployment as commands use it, with or without a running gateway: its files read, its database open."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.cli.known_keys import require_its_database, with_known_keys
from gateway.clock import now_us
from gateway.composition.deployment import Deployment, load_deployment
from gateway.config.home import find_home
from gateway.errors import StateError
from gateway.reports.services import ReportServices, build_report_services
from gateway.routing.rules import RulesDocument
from gateway.routing.snapshot import Snapshot
from gateway.rulebook.versions import text_version
from gateway.storage.database import lacks_its_file, migrate_engine, open_database, schema_there
from gateway.storage.pepper import require_pepper
from gateway.storage.revisions import known_revisions, newest_revision
from gateway.storage.sql.keys import SqlKeyStore
from gateway.storage.sql.ledger import SqlLedger
from gateway.storage.sql.litellm_keys import SqlLiteLLMKeys
from gateway.storage.sql.rents import SqlRents
from gateway.storage.sql.reports import SqlReports
from gateway.storage.sql.rules import SqlRulesStore
from gateway.storage.sql.secrets import SqlSecrets

AUTHOR = "command line"
"""Of changes that commands make, in the audit log."""
Answer = TypeVar("Answer")


class NoSchema(StateError):
    """The database has no tables yet, or an older schema that has to be migrated first."""

    def __init__(self, message: str, *, is_empty: bool) -> None:
        super().__init__(message)
        self.is_empty = is_empty


@dataclass(frozen=True, slots=True)
class State:
    """Open stores."""

    deployment: Deployment
    database: AsyncEngine
    keys: SqlKeyStore
    litellm_keys: SqlLiteLLMKeys
    ledger: SqlLedger
    reports: SqlReports
    rules: SqlRulesStore
    secrets: SqlSecrets

    async def active_rules(self) -> tuple[RulesDocument, str]:
        """The rules in force and their version: those of the database, or the file's before a first start."""
        version = await self.rules.active()
        stored = await self.rules.get(version) if version is not None else None
        if stored is None:
            return self.deployment.rules, text_version(self.deployment.rules_text)
        return self.deployment.catalogue.parse(stored.text, file=f"rules {stored.version}"), stored.version

    async def snapshot(self) -> Snapshot:
        """What the gateway decides by."""
        document, version = await self.active_rules()
        return self.snapshot_of(document, version)

    async def report_services(self) -> ReportServices:
        """The reports, of this deployment."""
        snapshot = await self.snapshot()
        rents = SqlRents(self.database)
        return build_report_services(self.reports, rents, lambda: self.deployment, lambda: snapshot, now_us)

    def snapshot_of(self, document: RulesDocument, version: str = "") -> Snapshot:
        """What it would decide by under other rules. No prompt is read, so the classifier (0.1 s) is not loaded."""
        deployment = self.deployment
        return deployment.catalogue.snapshot(
            document, deployment.prices, classifier_version="", at_us=now_us(), text_version=version
        )


@asynccontextmanager
async def open_state(*, is_looking: bool = False) -> AsyncGenerator[State]:
    """The stores of BREAKEVEN_HOME, migrated. Raises ConfigurationError or StateError, saying what to do.

    With `is_looking`, no schema is made or migrated: were a gateway's tables lost, an empty schema would tell it that
    it has no keys.
    """
    home = find_home()
    require_its_database(home)
    deployment = load_deployment(home, environ=with_known_keys(home))
    database = open_database(deployment.database_url)
    try:
        if is_looking:
            await require_newest(database)
        elif await schema_there(database) != newest_revision():  # migrating waits for writers
            await migrate_engine(database)
        await require_pepper(database, home)
        yield State(
            deployment=deployment,
            database=database,
            keys=SqlKeyStore(database, home.pepper()),
            litellm_keys=SqlLiteLLMKeys(database, home.pepper()),
            ledger=SqlLedger(database),
            reports=SqlReports(database),
            rules=SqlRulesStore(database),
            secrets=SqlSecrets(database, home.pepper()),
        )
    finally:
        await database.dispose()


def ask(question: Callable[[State], Awaitable[Answer]], *, is_looking: bool = False) -> Answer:
    """Opens the state, as `open_state` does, and awaits `question` of it, for a command, which runs no event loop."""

    async def answer() -> Answer:
        async with open_state(is_looking=is_looking) as state:
            return await question(state)

    return asyncio.run(answer())


def ask_reports(question: Callable[[ReportServices], Awaitable[Answer]]) -> Answer:
    """Like `ask`, of the reports."""

    async def answer(state: State) -> Answer:
        return await question(await state.report_services())

    return ask(answer)


async def require_newest(database: AsyncEngine) -> None:
    """Raises StateError, or NoSchema if `breakeven serve` will mend it."""
    present = None if lacks_its_file(database) else await schema_there(database)
    newest = newest_revision()
    if present is None:
        raise NoSchema("without tables yet: `breakeven serve` makes them", is_empty=True)
    if present not in known_revisions():
        raise StateError(
            f"its schema is {present}, of a newer Breakeven: start that version or a newer one, or restore the backup "
            "from before the upgrade"
        )
    if present != newest:
        raise NoSchema(f"its schema is {present}: `breakeven serve` brings it to {newest}", is_empty=False)
