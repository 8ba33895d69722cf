"""Monthly budgets of teams, projects and everything."""

import json
from collections.abc import Callable, Sequence

from sqlalchemy import delete, select
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.clock import now_us
from gateway.limits.values import BudgetScope
from gateway.money import format_usd
from gateway.storage.database import AUDIT_LOCK, lock, writing
from gateway.storage.sql.audit import append_audit
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
        key = (budgets.c.scope == budget.scope) & (budgets.c.name == budget.name)
        async with writing(self._engine) as connection:
            await lock(connection, AUDIT_LOCK)  # whoever comes second waits here, and then reads what the first set
            before = (await connection.execute(select(budgets.c.month_pico_usd, budgets.c.stops).where(key))).first()
            await connection.execute(delete(budgets).where(key))
            await connection.execute(
                budgets.insert().values(
                    scope=budget.scope,
                    name=budget.name,
                    month_pico_usd=budget.month_pico_usd,
                    set_by=budget.set_by,
                    set_at_us=budget.set_at_us,
                    stops=budget.stops,
                )
            )
            await append_audit(
                connection,
                at_us=budget.set_at_us,
                actor=budget.set_by,
                action="budget.set",
                subject=_subject(budget.scope, budget.name),
                detail=json.dumps(
                    {
                        "before_usd": None if before is None else format_usd(before.month_pico_usd),
                        "after_usd": format_usd(budget.month_pico_usd),
                        "stopped_before": None if before is None else before.stops,
                        "stops": budget.stops,
                    }
                ),
            )

    async def remove(self, scope: BudgetScope, name: str, *, author: str) -> bool:
        async with writing(self._engine) as connection:
            await lock(connection, AUDIT_LOCK)  # in the order of `set`
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


def _subject(scope: BudgetScope, name: str) -> str:
    return scope if scope == "all" else f"{scope} {name}"
