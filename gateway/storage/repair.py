"""Adds up again what an older replica, beside an upgrade, left out of the sums that budgets of end users count."""

from datetime import UTC, date, datetime

from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.clock import now_us
from gateway.instants import DAY_US, microseconds
from gateway.storage.database import RETENTION_LOCK, lock, shared_now_us, writing
from gateway.storage.sql.audit import append_audit
from gateway.storage.sums.end_users import add_up_again
from gateway.storage.sums.verification import forgotten_months


async def repair_end_users(engine: AsyncEngine, day: date, *, author: str) -> None:
    """Of a day, from its single requests. Can run beside whoever books, corrects and forgets."""
    number = microseconds(datetime(day.year, day.month, day.day, tzinfo=UTC)) // DAY_US
    async with writing(engine) as connection:
        await lock(connection, RETENTION_LOCK)  # it records what it is about to delete, so what is read here is whole
        if f"{day:%Y-%m}" in await forgotten_months(connection):
            return
        await add_up_again(connection, number)
        at_us = await shared_now_us(connection, now_us)
        await append_audit(connection, at_us=at_us, actor=author, action="end_users.add_up", subject=str(day))
