"""Forgets what is old enough: single requests by whole months, stored texts by age. Sums are kept for ever."""

import json
from dataclasses import asdict, dataclass

from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.storage.database import writing
from gateway.storage.partitions import Partitions, drop_bodies_before
from gateway.storage.sql_audit import append_audit

DAY_US = 86_400_000_000


@dataclass(frozen=True, slots=True)
class Forgotten:
    """Months (2026-01) whose single requests are gone, and how many stored texts are."""

    months: list[str]
    bodies: int


async def apply_retention(
    engine: AsyncEngine, *, requests_days: int | None, bodies_days: int, now_us: int, author: str = "retention"
) -> Forgotten:
    """A month goes when all of it is older than `requests_days`; None keeps every request. Audited."""
    months: list[str] = []
    if requests_days is not None:
        months = await Partitions(engine).drop_before(now_us - requests_days * DAY_US)
    forgotten = Forgotten(months, await drop_bodies_before(engine, now_us - bodies_days * DAY_US))
    if forgotten.months or forgotten.bodies:
        async with writing(engine) as connection:
            detail = json.dumps(asdict(forgotten))
            await append_audit(
                connection, at_us=now_us, actor=author, action="retention", subject="requests", detail=detail
            )
    return forgotten
