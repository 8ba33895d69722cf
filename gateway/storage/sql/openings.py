"""What budgets had spent elsewhere: one figure for each budget and window, the newest that was heard."""

import json
from collections.abc import Callable, Collection, Sequence

from sqlalchemy import delete, select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from gateway.clock import now_us
from gateway.instants import DAY_US
from gateway.limits.openings import Opening
from gateway.money import format_usd
from gateway.storage.database import AUDIT_LOCK, lock, writing
from gateway.storage.sql.audit import append_audit
from gateway.storage.tables.administration import opening_amounts as table

RECENT_US = 62 * DAY_US


class SqlOpenings:
    """See gateway.limits.openings.Openings."""

    def __init__(self, engine: AsyncEngine, *, now_us: Callable[[], int] = now_us) -> None:
        self._engine = engine
        self._now_us = now_us

    async def of(self, windows: Collection[str]) -> Sequence[Opening]:
        query = select(table.c.scope, table.c.name, table.c.window_id, table.c.amount_pico_usd)
        async with self._engine.connect() as connection:
            rows = await connection.execute(query.where(table.c.window_id.in_(sorted(windows))))
        return [Opening(*row) for row in rows]

    async def recent(self) -> Sequence[Opening]:
        """Those that a window may still need, also one that a request under way outlives."""
        query = select(table.c.scope, table.c.name, table.c.window_id, table.c.amount_pico_usd)
        async with self._engine.connect() as connection:
            rows = await connection.execute(query.where(table.c.at_us >= self._now_us() - RECENT_US))
        return [Opening(*row) for row in rows]

    async def set(self, opening: Opening, *, author: str) -> None:
        """In the place of what was heard before."""
        async with writing(self._engine) as connection:
            await set_opening(connection, opening, author=author, at_us=self._now_us())


async def set_opening(connection: AsyncConnection, opening: Opening, *, author: str, at_us: int) -> None:
    """As `SqlOpenings.set`, in the transaction of what it belongs to. The same figure again records nothing."""
    its = (table.c.scope == opening.scope) & (table.c.name == opening.name) & (table.c.window_id == opening.window_id)
    await lock(connection, AUDIT_LOCK)  # two at once take turns, so that each is audited as it was
    before = (await connection.execute(select(table.c.amount_pico_usd).where(its))).scalar()
    if opening.pico_usd == (before or 0):
        return
    await connection.execute(delete(table).where(its))
    row = {"scope": opening.scope, "name": opening.name, "window_id": opening.window_id}
    await connection.execute(table.insert().values(**row, amount_pico_usd=opening.pico_usd, at_us=at_us))
    detail = {
        "window": opening.window_id,
        "before_usd": None if before is None else format_usd(before),
        "after_usd": format_usd(opening.pico_usd),
    }
    await append_audit(
        connection,
        at_us=at_us,
        actor=author,
        action="budget.open",
        subject=opening.name if opening.scope == "key" else f"{opening.scope} {opening.name}",
        detail=json.dumps(detail),
    )
