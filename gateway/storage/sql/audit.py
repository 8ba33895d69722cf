"""The audit log: a chain of digests, which reveals records that were edited, removed or inserted."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from gateway.storage.database import AUDIT_LOCK, lock, writing
from gateway.storage.tables.administration import audit_log
from gateway.stores import AuditRecord, Verified

GENESIS = bytes(32)
PAGE = 1000
COVERED = ("sequence", "at_us", "actor", "action", "subject", "reason", "detail")


def link(previous: bytes, record: dict[str, Any]) -> bytes:
    """SHA-256 of the previous digest and the record as canonical JSON."""
    covered = json.dumps([record[name] for name in COVERED], separators=(",", ":"))
    return hashlib.sha256(previous + covered.encode("utf-8", "surrogatepass")).digest()


@dataclass(frozen=True, slots=True)
class Change:
    """The content of a record, besides the actor and the time."""

    action: str
    subject: str
    reason: str = ""
    detail: str = ""


async def append_audit(
    connection: AsyncConnection,
    *,
    at_us: int,
    actor: str,
    action: str,
    subject: str,
    reason: str = "",
    detail: str = "",
) -> int:
    """Add a record in the transaction of the change that it records; returns its sequence number."""
    return await append_audits(connection, [Change(action, subject, reason, detail)], at_us=at_us, actor=actor)


async def append_audits(connection: AsyncConnection, changes: Sequence[Change], *, at_us: int, actor: str) -> int:
    """Like `append_audit`, for one or more records, in order; returns the last one's sequence number."""
    await lock(connection, AUDIT_LOCK)
    newest = select(audit_log.c.sequence, audit_log.c.digest).order_by(audit_log.c.sequence.desc()).limit(1)
    last = (await connection.execute(newest)).first()
    sequence, previous = (last.sequence, bytes(last.digest)) if last else (0, GENESIS)
    records: list[dict[str, Any]] = []
    for change in changes:
        sequence += 1
        record = {"sequence": sequence, "at_us": at_us, "actor": actor, **asdict(change)}
        records.append({**record, "previous_digest": previous, "digest": (previous := link(previous, record))})
    await connection.execute(audit_log.insert(), records)
    return sequence


class SqlAuditLog:
    """Reads and verifies the log; `append` is for changes that touch no other table."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def append(self, *, at_us: int, actor: str, action: str, subject: str, reason: str, detail: str = "") -> int:
        async with writing(self._engine) as connection:
            return await append_audit(
                connection, at_us=at_us, actor=actor, action=action, subject=subject, reason=reason, detail=detail
            )

    async def page(self, *, before: int | None, limit: int) -> Sequence[AuditRecord]:
        query = select(audit_log).order_by(audit_log.c.sequence.desc()).limit(limit)
        if before is not None:
            query = query.where(audit_log.c.sequence < before)
        async with self._engine.connect() as connection:
            rows = (await connection.execute(query)).mappings().all()
        return [AuditRecord(**{name: row[name] for name in COVERED}, digest=bytes(row["digest"]).hex()) for row in rows]

    async def head(self) -> int:
        """The last record's sequence number, which grows with every change; 0 if there is none."""
        newest = await self.page(before=None, limit=1)
        return newest[0].sequence if newest else 0

    async def verify(self) -> Verified:
        previous, expected = GENESIS, 1
        while True:
            query = select(audit_log).where(audit_log.c.sequence >= expected).order_by(audit_log.c.sequence).limit(PAGE)
            async with self._engine.connect() as connection:
                rows = (await connection.execute(query)).mappings().all()
            for row in rows:
                record = dict(row)
                is_next = record["sequence"] == expected and bytes(record["previous_digest"]) == previous
                if not is_next or bytes(record["digest"]) != link(previous, record):
                    return Verified(False, expected - 1, record["sequence"])
                previous, expected = bytes(record["digest"]), expected + 1
            if len(rows) < PAGE:
                return Verified(True, expected - 1, None)
