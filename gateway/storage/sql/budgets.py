"""Monthly budgets of teams, projects and everything."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict

from sqlalchemy import bindparam, delete, select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from gateway.clock import now_us
from gateway.limits.values import BudgetScope
from gateway.money import format_usd
from gateway.storage.database import AUDIT_LOCK, lock, writing
from gateway.storage.sql.audit import Change, append_audit, append_audits
from gateway.storage.tables.administration import budgets
from gateway.stores import Budget


class SqlBudgets:
    """See gateway.stores.BudgetStore."""

    def __init__(self, engine: AsyncEngine, *, now_us: Callable[[], int] = now_us) -> None:
        self._engine = engine
        self._now_us = now_us

    async def budgets(self) -> Sequence[Budget]:
        query = select(budgets).order_by(budgets.c.scope, budgets.c.name)
        async with self._engine.connect() as connection:
            rows = (await connection.execute(query)).mappings().all()
        found = [Budget(**row) for row in rows]
        return sorted(found, key=lambda one: (one.scope != "all", one.scope != "team", one.name))

    async def set(self, budget: Budget) -> None:
        async with writing(self._engine) as connection:
            await set_budgets(connection, [budget])

    async def remove(self, scope: BudgetScope, name: str, *, author: str) -> bool:
        async with writing(self._engine) as connection:
            await lock(connection, AUDIT_LOCK)  # first, as in `set`, so that the two cannot deadlock
            gone = await connection.execute(
                delete(budgets).where((budgets.c.scope == scope) & (budgets.c.name == name))
            )
            if not gone.rowcount:
                return False
            await append_audit(
                connection,
                at_us=self._now_us(),
                actor=author,
                action="budget.remove",
                subject=_subject(scope, name),
            )
        return True


async def set_budgets(connection: AsyncConnection, wanted: Sequence[Budget]) -> None:
    """Like `SqlBudgets.set`, in the caller's transaction; all must have the same author and time."""
    if not wanted:
        return
    await lock(connection, AUDIT_LOCK)  # a concurrent writer waits here, and then reads what the first one set
    query = select(budgets).where(budgets.c.name.in_({one.name for one in wanted}))
    rows = (await connection.execute(query)).mappings().all()
    before = {(row["scope"], row["name"]): Budget(**row) for row in rows}
    its = [{"scope": one.scope, "name": one.name} for one in wanted]
    old = (budgets.c.scope == bindparam("scope")) & (budgets.c.name == bindparam("name"))
    await connection.execute(delete(budgets).where(old), its)
    await connection.execute(budgets.insert(), [asdict(one) for one in wanted])
    changes = [_change(one, before.get((one.scope, one.name))) for one in wanted]
    await append_audits(connection, changes, at_us=wanted[0].set_at_us, actor=wanted[0].set_by)


def _change(budget: Budget, before: Budget | None) -> Change:
    detail = {
        "before_usd": None if before is None else format_usd(before.month_pico_usd),
        "after_usd": format_usd(budget.month_pico_usd),
        "stopped_before": None if before is None else before.stops,
        "stops": budget.stops,
    }
    return Change("budget.set", _subject(budget.scope, budget.name), detail=json.dumps(detail))


def _subject(scope: BudgetScope, name: str) -> str:
    return scope if scope == "all" else f"{scope} {name}"
