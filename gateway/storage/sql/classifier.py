"""The classifier in force and the files of those that were learned, for all replicas."""

from collections.abc import Collection, Mapping

from sqlalchemy import delete, false, func, or_, select
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.storage.database import AUDIT_LOCK, lock, writing
from gateway.storage.sql.audit import append_audit
from gateway.storage.tables.administration import classifier_choices, classifier_files
from gateway.stores import ClassifierChoice


class SqlClassifier:
    """See gateway.stores.ClassifierStore."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def newest(self) -> int:
        async with self._engine.connect() as connection:
            found = await connection.scalar(select(func.max(classifier_choices.c.number)))
        return found or 0

    async def history(self, number: int) -> str:
        query = select(classifier_choices.c.history).where(classifier_choices.c.number == number)
        async with self._engine.connect() as connection:
            return str((await connection.execute(query)).scalar_one())

    async def choose(self, choice: ClassifierChoice) -> bool:
        newest = select(func.max(classifier_choices.c.number))
        async with writing(self._engine) as connection:
            await lock(connection, AUDIT_LOCK)
            if ((await connection.scalar(newest)) or 0) != choice.number - 1:
                return False
            row = {"number": choice.number, "history": choice.history, "at_us": choice.at_us}
            await connection.execute(classifier_choices.insert(), [row])
            kept = [classifier_files.c.path.startswith(f"artefacts/{name}/") for name in choice.artefacts]
            old = classifier_files.c.path.startswith("artefacts/") & ~or_(false(), *kept)
            await connection.execute(delete(classifier_files).where(old))
            await append_audit(
                connection,
                at_us=choice.at_us,
                actor=choice.author,
                action=choice.action,
                subject=choice.subject,
                reason=choice.reason,
            )
        return True

    async def keep(self, files: Mapping[str, bytes]) -> None:
        async with writing(self._engine) as connection:
            await lock(connection, AUDIT_LOCK)  # so that two who keep the same file do not collide
            there = select(classifier_files.c.path).where(classifier_files.c.path.in_(sorted(files)))
            known = set((await connection.execute(there)).scalars())
            news = [{"path": path, "content": content} for path, content in files.items() if path not in known]
            if news:
                await connection.execute(classifier_files.insert(), news)

    async def paths(self) -> Collection[str]:
        async with self._engine.connect() as connection:
            return set((await connection.execute(select(classifier_files.c.path))).scalars())

    async def read(self, paths: Collection[str]) -> Mapping[str, bytes]:
        query = select(classifier_files).where(classifier_files.c.path.in_(sorted(paths)))
        async with self._engine.connect() as connection:
            return {row.path: bytes(row.content) for row in await connection.execute(query)}
