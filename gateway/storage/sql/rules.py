"""Versions of the rules, and which one is active; see gateway.rulebook.service.RulesStore."""

from collections.abc import Sequence
from dataclasses import asdict, fields

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.rulebook.versions import Activation, StoredRules
from gateway.storage.database import AUDIT_LOCK, lock, writing
from gateway.storage.rows.interned import insert_or_ignore
from gateway.storage.sql.audit import append_audit
from gateway.storage.tables.administration import activations, active_rules, rule_versions

ACTIVATION = tuple(activations.c[field.name] for field in fields(Activation))


class SqlRulesStore:
    """Versions never change; activation is a compare-and-set with its audit record in the same transaction."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def put(self, rules: StoredRules) -> None:
        async with writing(self._engine) as connection:
            added = await connection.execute(insert_or_ignore(connection.dialect, rule_versions).values(asdict(rules)))
            if added.rowcount:
                await append_audit(
                    connection,
                    at_us=rules.created_at_us,
                    actor=rules.author,
                    action="rules.put",
                    subject=rules.version,
                    reason=rules.reason,
                )

    async def get(self, version: str) -> StoredRules | None:
        async with self._engine.connect() as connection:
            query = select(rule_versions).where(rule_versions.c.version == version)
            row = (await connection.execute(query)).mappings().first()
        return None if row is None else StoredRules(**row)

    async def versions(self) -> Sequence[StoredRules]:
        query = select(rule_versions).order_by(rule_versions.c.created_at_us.desc(), rule_versions.c.version)
        async with self._engine.connect() as connection:
            return [StoredRules(**row) for row in (await connection.execute(query)).mappings()]

    async def active(self) -> str | None:
        async with self._engine.connect() as connection:
            return (await connection.execute(select(active_rules.c.version))).scalar()

    async def activate(self, activation: Activation, *, diff: str) -> bool:
        async with writing(self._engine) as connection:
            await lock(connection, AUDIT_LOCK)  # a concurrent writer waits here, and then reads what the first one set
            active = (await connection.execute(select(active_rules.c.version))).scalar()
            if active != activation.previous:
                return False
            if active is None:
                await connection.execute(active_rules.insert().values(id=1, version=activation.version))
            else:
                await connection.execute(active_rules.update().values(version=activation.version))
            await connection.execute(activations.insert().values(asdict(activation)))
            await append_audit(
                connection,
                at_us=activation.at_us,
                actor=activation.author,
                action="rules.activate",
                subject=activation.version,
                reason=activation.reason,
                detail=diff,
            )
        return True

    async def activations(self) -> Sequence[Activation]:
        query = select(*ACTIVATION).order_by(activations.c.sequence.desc())
        async with self._engine.connect() as connection:
            return [Activation(*row) for row in await connection.execute(query)]
