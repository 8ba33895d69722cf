"""Every store that one process opens on its database."""

import hashlib
import hmac
from dataclasses import dataclass

from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.config.home import Home
from gateway.storage.sql.adjustments import SqlAdjustments
from gateway.storage.sql.audit import SqlAuditLog
from gateway.storage.sql.batches import SqlBatches
from gateway.storage.sql.bodies import SqlBodies
from gateway.storage.sql.budgets import SqlBudgets
from gateway.storage.sql.classifier import SqlClassifier
from gateway.storage.sql.entries import SqlEntries
from gateway.storage.sql.feedback import SqlFeedback
from gateway.storage.sql.files import SqlFiles
from gateway.storage.sql.keys import SqlKeyStore
from gateway.storage.sql.ledger import SqlLedger
from gateway.storage.sql.notices import SqlNotices
from gateway.storage.sql.openings import SqlOpenings
from gateway.storage.sql.rents import SqlRents
from gateway.storage.sql.reports import SqlReports
from gateway.storage.sql.rules import SqlRulesStore
from gateway.storage.sql.sealed import Seal
from gateway.storage.sql.secrets import SqlSecrets
from gateway.storage.sums.end_users import EndUserDays


@dataclass(frozen=True, slots=True)
class SqlStores:
    """See the protocol that each store implements."""

    adjustments: SqlAdjustments
    audit: SqlAuditLog
    batches: SqlBatches
    bodies: SqlBodies
    budgets: SqlBudgets
    classifier: SqlClassifier
    end_users: EndUserDays
    entries: SqlEntries
    feedback: SqlFeedback
    files: SqlFiles
    keys: SqlKeyStore
    ledger: SqlLedger
    notices: SqlNotices
    openings: SqlOpenings
    rents: SqlRents
    reports: SqlReports
    rules: SqlRulesStore
    secrets: SqlSecrets


def open_files(database: AsyncEngine, home: Home) -> SqlFiles:
    """The files are encrypted with a key that every replica derives from the pepper."""
    return SqlFiles(database, Seal(hmac.digest(home.pepper(), b"stored files", hashlib.sha256), "pepper"))


def open_stores(database: AsyncEngine, home: Home) -> SqlStores:
    """Reads only the home's two secrets, and does not connect yet."""
    pepper = home.pepper()
    files = open_files(database, home)
    return SqlStores(
        adjustments=SqlAdjustments(database),
        audit=SqlAuditLog(database),
        batches=SqlBatches(database, files),
        bodies=SqlBodies(database, home.bodies_key()),
        budgets=SqlBudgets(database),
        classifier=SqlClassifier(database),
        end_users=EndUserDays(database),
        entries=SqlEntries(database),
        feedback=SqlFeedback(database),
        files=files,
        keys=SqlKeyStore(database, pepper),
        ledger=SqlLedger(database),
        notices=SqlNotices(database),
        openings=SqlOpenings(database),
        rents=SqlRents(database),
        reports=SqlReports(database),
        rules=SqlRulesStore(database),
        secrets=SqlSecrets(database, pepper),
    )
