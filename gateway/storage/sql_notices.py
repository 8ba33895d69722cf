"""What was told of budgets, and who is telling: a unique row is the claim."""

from collections.abc import Collection, Sequence
from dataclasses import asdict

from sqlalchemy import ColumnElement, and_, delete, or_, select, update
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.notices.notice import Mark
from gateway.notices.watch import ABANDONED_US
from gateway.storage.database import writing
from gateway.storage.interned import insert_or_ignore
from gateway.storage.tables import budget_notices as table


class SqlNotices:
    """See gateway.notices.watch.NoticeStore."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def told(self, windows: Collection[str]) -> Sequence[Mark]:
        columns = (table.c.scope, table.c.name, table.c.window_id, table.c.amount_pico_usd, table.c.share_per_mille)
        query = select(*columns).where(table.c.window_id.in_(windows), table.c.told_at_us.is_not(None))
        async with self._engine.connect() as connection:
            return [Mark(**row) for row in (await connection.execute(query)).mappings()]

    async def claim(self, mark: Mark, at_us: int) -> bool:
        # After it too: a clock that was ahead must not keep it from being told.
        is_abandoned = or_(table.c.claimed_at_us < at_us - ABANDONED_US, table.c.claimed_at_us > at_us + ABANDONED_US)
        async with writing(self._engine) as connection:
            await connection.execute(delete(table).where(_untold(mark), is_abandoned))
            row = insert_or_ignore(connection, table).values(**asdict(mark), claimed_at_us=at_us)
            made = await connection.execute(row)
        return made.rowcount == 1

    async def give_back(self, mark: Mark, claimed_at_us: int) -> None:
        async with writing(self._engine) as connection:
            await connection.execute(delete(table).where(_untold(mark), table.c.claimed_at_us == claimed_at_us))

    async def set_told(self, mark: Mark, at_us: int) -> None:
        async with writing(self._engine) as connection:
            await connection.execute(update(table).where(_untold(mark)).values(told_at_us=at_us))


def _untold(mark: Mark) -> ColumnElement[bool]:
    return and_(*(table.c[name] == value for name, value in asdict(mark).items()), table.c.told_at_us.is_(None))
