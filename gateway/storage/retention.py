"""Deletes old data: individual requests by whole months, stored texts by age; and who an end user was. Sums are kept
forever."""

import json
from dataclasses import asdict, dataclass

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.instants import DAY_US
from gateway.storage.database import RETENTION_LOCK, lock, writing
from gateway.storage.partitions import Partitions, bodies_before, drop_bodies_before
from gateway.storage.sql.audit import SqlAuditLog, append_audit
from gateway.storage.tables.books import entries
from gateway.storage.tables.content import request_bodies


@dataclass(frozen=True, slots=True)
class Forgotten:
    """Months (2026-01) whose individual requests were deleted, and the number of stored texts deleted."""

    months: list[str]
    bodies: int


@dataclass(frozen=True, slots=True)
class EndUserForgotten:
    """How many requests named the end user, and how many of them had stored texts."""

    requests: int
    bodies: int


async def forget_end_user(engine: AsyncEngine, end_user: str, *, now_us: int, author: str) -> EndUserForgotten:
    """Their requests stay, and name no end user; what was said in them goes. The audit record does not name them."""
    theirs = entries.c.end_user == end_user
    async with writing(engine) as connection:
        texts = request_bodies.c.request_id.in_(select(entries.c.request_id).where(theirs))
        deleted = await connection.execute(request_bodies.delete().where(texts))
        changed = await connection.execute(entries.update().where(theirs).values(end_user=None))
        forgotten = EndUserForgotten(changed.rowcount, deleted.rowcount)
        if forgotten.requests:
            detail = json.dumps(asdict(forgotten))
            await append_audit(
                connection, at_us=now_us, actor=author, action="end_user.forget", subject="an end user", detail=detail
            )
    return forgotten


async def apply_retention(
    engine: AsyncEngine, *, requests_days: int | None, bodies_days: int, now_us: int, author: str = "retention"
) -> Forgotten:
    """A month is deleted when all of it is older than `requests_days`; None keeps every request.

    The audit record is written first, so that a run killed midway leaves no unexplained gap.
    """
    partitions, bodies_until_us = Partitions(engine), now_us - bodies_days * DAY_US
    requests_until_us = 0 if requests_days is None else now_us - requests_days * DAY_US
    async with engine.connect() as alone:
        await lock(alone, RETENTION_LOCK)  # two at once would both record what only one deletes
        forgotten = Forgotten(
            await partitions.months_before(requests_until_us), await bodies_before(engine, bodies_until_us)
        )
        if forgotten.months or forgotten.bodies:
            detail = json.dumps(asdict(forgotten))
            await SqlAuditLog(engine).append(
                at_us=now_us, actor=author, action="retention", subject="requests", reason="", detail=detail
            )
            await drop_bodies_before(engine, bodies_until_us)  # first, because it waits for no lock
            await partitions.drop_before(requests_until_us)
    return forgotten
