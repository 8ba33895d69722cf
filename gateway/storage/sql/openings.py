"""What budgets had spent elsewhere before they were imported: the latest figure for each budget and window."""

import json
from collections.abc import Callable, Collection, Mapping, Sequence

from sqlalchemy import bindparam, delete, select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from gateway.clock import now_us
from gateway.instants import DAY_US
from gateway.limits.openings import Opening, by_budget
from gateway.money import format_usd, known_usd
from gateway.storage.database import AUDIT_LOCK, lock, writing
from gateway.storage.sql.audit import Change, append_audits
from gateway.storage.tables.administration import opening_amounts as table

ITS = (table.c.scope, table.c.name, table.c.window_id)
RECENT_US = 62 * DAY_US


class SqlOpenings:
    """See gateway.limits.openings.Openings."""

    def __init__(self, engine: AsyncEngine, *, now_us: Callable[[], int] = now_us) -> None:
        self._engine = engine
        self._now_us = now_us

    async def of(self, windows: Collection[str]) -> Sequence[Opening]:
        query = select(*ITS, table.c.amount_pico_usd)
        async with self._engine.connect() as connection:
            rows = await connection.execute(query.where(table.c.window_id.in_(sorted(windows))))
        return [Opening(*row) for row in rows]

    async def recent(self) -> Sequence[Opening]:
        """Those of windows that may still matter, including windows that ended while a request was in progress."""
        query = select(*ITS, table.c.amount_pico_usd)
        async with self._engine.connect() as connection:
            rows = await connection.execute(query.where(table.c.at_us >= self._now_us() - RECENT_US))
        return [Opening(*row) for row in rows]

    async def set(self, opening: Opening, *, author: str) -> None:
        """Replaces the previous figure."""
        async with writing(self._engine) as connection:
            await set_openings(connection, [opening], author=author, at_us=self._now_us())


async def set_openings(connection: AsyncConnection, openings: Sequence[Opening], *, author: str, at_us: int) -> None:
    """Like `SqlOpenings.set`, in the caller's transaction. Unchanged figures are not recorded."""
    await lock(connection, AUDIT_LOCK)  # one at a time, so that each is audited with the right previous figure
    names, windows = {one.name for one in openings}, {one.window_id for one in openings}
    known = select(*ITS, table.c.amount_pico_usd).where(table.c.name.in_(names), table.c.window_id.in_(windows))
    before = by_budget([Opening(*row) for row in await connection.execute(known)])
    news = [one for one in openings if one.pico_usd != before.get((one.scope, one.name, one.window_id), 0)]
    if not news:
        return
    its = [{"scope": one.scope, "name": one.name, "window_id": one.window_id} for one in news]
    await connection.execute(delete(table).where(*(column == bindparam(column.name) for column in ITS)), its)
    amounts = [{"amount_pico_usd": one.pico_usd, "at_us": at_us} for one in news]
    await connection.execute(table.insert(), [which | amount for which, amount in zip(its, amounts, strict=True)])
    await append_audits(connection, [_change(one, before) for one in news], at_us=at_us, actor=author)


def _change(opening: Opening, before: Mapping[tuple[str, str, str], int]) -> Change:
    pico_usd = before.get((opening.scope, opening.name, opening.window_id))
    detail = {
        "window": opening.window_id,
        "before_usd": known_usd(pico_usd),
        "after_usd": format_usd(opening.pico_usd),
    }
    subject = opening.name if opening.scope == "key" else f"{opening.scope} {opening.name}"
    return Change("budget.open", subject, detail=json.dumps(detail))
