"""Deletes old data: individual requests by whole months, stored texts by age; and who an end user was. Sums are kept
forever."""

import asyncio
import json
from dataclasses import asdict, dataclass
from typing import Final

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.instants import DAY_US
from gateway.storage.database import CORRECTIONS_LOCK, RETENTION_LOCK, lock, surely_now_us, writing
from gateway.storage.partitions import Partitions, bodies_before, drop_bodies_before
from gateway.storage.sql.audit import SqlAuditLog
from gateway.storage.sums.end_users import forget_end_users_days, forget_ended_days
from gateway.storage.tables.books import entries
from gateway.storage.tables.content import request_bodies

PART: Final = 5_000
PAUSE_SECONDS: Final = 0.1
"""Between two parts, so that others can write."""


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


async def forget_end_user(
    engine: AsyncEngine, end_user: str, *, now_us: int, author: str, part: int = PART
) -> EndUserForgotten:
    """Their requests stay, and name no end user; what was said in them goes. The audit record does not name them.

    It is written first, and the requests are changed `part` at a time: SQLite books nothing while one transaction
    writes. A run killed midway is explained by its record, and can be repeated.
    """
    theirs = entries.c.end_user == end_user
    texts = request_bodies.c.request_id.in_(select(entries.c.request_id).where(theirs))
    async with engine.connect() as connection:
        requests = await connection.scalar(select(func.count()).select_from(entries).where(theirs))
        bodies = await connection.scalar(select(func.count()).select_from(request_bodies).where(texts))
    forgotten = EndUserForgotten(requests or 0, bodies or 0)
    if forgotten.requests:
        detail = json.dumps(asdict(forgotten))
        await SqlAuditLog(engine).append(
            at_us=now_us, actor=author, action="end_user.forget", subject="an end user", reason="", detail=detail
        )
    while True:
        if await _forget_part(engine, end_user, part) < part:
            return forgotten
        await asyncio.sleep(PAUSE_SECONDS)


async def _forget_part(engine: AsyncEngine, end_user: str, part: int) -> int:
    async with writing(engine) as connection:
        await lock(connection, CORRECTIONS_LOCK)  # one under way would add to the sum what it read of the request
        await forget_end_users_days(connection, end_user)  # first: whoever books waits, and then begins a new sum
        theirs = select(entries.c.request_id).where(entries.c.end_user == end_user)
        found = (await connection.scalars(theirs.limit(part))).all()
        await connection.execute(request_bodies.delete().where(request_bodies.c.request_id.in_(found)))
        await connection.execute(entries.update().where(entries.c.request_id.in_(found)).values(end_user=None))
    return len(found)


async def apply_retention(
    engine: AsyncEngine, *, requests_days: int | None, bodies_days: int, now_us: int, author: str = "retention"
) -> Forgotten:
    """A month is deleted when all of it is older than `requests_days`; None keeps every request.

    The audit record is written first, so that a run killed midway leaves no unexplained gap.
    """
    now_us = await surely_now_us(engine, now_us)
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
    async with writing(engine) as connection:
        await forget_ended_days(connection, now_us)
    return forgotten
