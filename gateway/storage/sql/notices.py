"""Budget notices that were sent or are being sent: a unique row is the claim to send one."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict

from sqlalchemy import ColumnElement, and_, delete, func, or_, select, update
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.clock import now_us
from gateway.notices.notice import Mark
from gateway.notices.watch import ABANDONED_US, NoticeState
from gateway.storage.database import shared_now_us, writing
from gateway.storage.rows.interned import insert_or_ignore
from gateway.storage.tables.administration import budget_notices as table
from gateway.storage.tables.administration import notice_state


class SqlNotices:
    """See gateway.notices.watch.NoticeStore."""

    def __init__(self, engine: AsyncEngine, *, now_us: Callable[[], int] = now_us) -> None:
        self._engine = engine
        self._now_us = now_us

    async def told(self, windows: Collection[str]) -> Sequence[Mark]:
        columns = (table.c.scope, table.c.name, table.c.window_id, table.c.amount_pico_usd, table.c.share_per_mille)
        query = select(*columns).where(table.c.window_id.in_(windows), table.c.told_at_us.is_not(None))
        async with self._engine.connect() as connection:
            return [Mark(**row) for row in (await connection.execute(query)).mappings()]

    async def claim(self, mark: Mark, at_us: int) -> bool:
        # A claim in the future counts as abandoned too: it was made while a clock was ahead.
        is_abandoned = or_(table.c.claimed_at_us < at_us - ABANDONED_US, table.c.claimed_at_us > at_us + ABANDONED_US)
        async with writing(self._engine) as connection:
            await connection.execute(delete(table).where(_untold(mark), is_abandoned))
            row = insert_or_ignore(connection.dialect, table).values(**asdict(mark), claimed_at_us=at_us)
            made = await connection.execute(row)
        return made.rowcount == 1

    async def give_back(self, mark: Mark, claimed_at_us: int) -> None:
        async with writing(self._engine) as connection:
            await connection.execute(delete(table).where(_untold(mark), table.c.claimed_at_us == claimed_at_us))

    async def set_told(self, mark: Mark, at_us: int) -> None:
        async with writing(self._engine) as connection:
            await connection.execute(update(table).where(_untold(mark)).values(told_at_us=at_us))

    async def state(self) -> NoticeState:
        async with self._engine.connect() as connection:
            row = (await connection.execute(select(notice_state))).mappings().first()
            at_us = await shared_now_us(connection, self._now_us)
        return NoticeState(at_us, **{name: row[name] for name in row if name != "id"}) if row else NoticeState(at_us)

    async def take_turn(self, seen: NoticeState) -> bool:
        moved = update(notice_state).where(notice_state.c.looked_at_us == seen.looked_at_us)
        async with writing(self._engine) as connection:
            first = {"id": 1, "looked_at_us": seen.now_us, "problem": ""}
            made = await connection.execute(insert_or_ignore(connection.dialect, notice_state).values(first))
            if made.rowcount == 1:
                return True
            return (await connection.execute(moved.values(looked_at_us=seen.now_us))).rowcount == 1

    async def note_failed(self, problem: str) -> None:
        async with writing(self._engine) as connection:
            at_us = await shared_now_us(connection, self._now_us)
            since_us = func.coalesce(notice_state.c.failing_since_us, at_us)
            values = {"failing_since_us": since_us, "failed_at_us": at_us, "problem": problem}
            await connection.execute(update(notice_state).values(values))

    async def note_done(self, *, is_sent: bool, is_foreseen: bool) -> None:
        async with writing(self._engine) as connection:
            at_us = await shared_now_us(connection, self._now_us)
            values: dict[str, int | None] = {"failing_since_us": None}
            values |= {"sent_at_us": at_us} if is_sent else {}
            values |= {"forecast_at_us": at_us} if is_foreseen else {}
            await connection.execute(update(notice_state).values(values))


def _untold(mark: Mark) -> ColumnElement[bool]:
    return and_(*(table.c[name] == value for name, value in asdict(mark).items()), table.c.told_at_us.is_(None))
