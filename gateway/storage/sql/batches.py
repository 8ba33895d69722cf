"""Batches, and the leases of the processes that work on them; storing a result renews the lease."""

from collections.abc import Callable, Collection, Sequence
from typing import Any

import msgspec
from sqlalchemy import Row, delete, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from gateway.batches.values import (
    MOST_UNDER_WAY,
    OUTPUT,
    UNDER_WAY,
    Asked,
    Batch,
    LineProblem,
    LineResult,
    Page,
    Progress,
    Status,
)
from gateway.clock import now_us
from gateway.errors import Conflict
from gateway.instants import HOUR_US
from gateway.storage.database import BATCHES_LOCK, lock, shared_now_us, surely_now_us, writing
from gateway.storage.rows.interned import insert_or_ignore
from gateway.storage.sql.audit import append_audit
from gateway.storage.sql.files import SqlFiles, drop_files, paged
from gateway.storage.tables.content import batches, file_parts, files

FORGET_AT_ONCE = 100


class SqlBatches:
    """See gateway.batches.values.BatchStore and AllBatches."""

    def __init__(self, engine: AsyncEngine, stored: SqlFiles, *, now_us: Callable[[], int] = now_us) -> None:
        self._engine = engine
        self._stored = stored
        self._now_us = now_us

    async def create(self, batch: Batch, *, most_under_way: int = MOST_UNDER_WAY) -> bool:
        mine = select(func.count()).where(batches.c.tenant == batch.tenant, batches.c.status.in_(UNDER_WAY))
        async with writing(self._engine) as connection:
            await lock(connection, BATCHES_LOCK)  # two that count at the same time would both find room
            if (await connection.execute(mine)).scalar_one() >= most_under_way:
                return False
            await connection.execute(batches.insert().values(_row(batch) | {"leased_until_us": 0}))
        return True

    async def get(self, tenant: str, batch_id: str) -> Batch | None:
        query = select(batches).where(batches.c.id == batch_id, batches.c.tenant == tenant)
        async with self._engine.connect() as connection:
            row = (await connection.execute(query)).first()
        return None if row is None else _batch(row)

    async def list(self, tenant: str, page: Page, *, prefix: str) -> tuple[Sequence[Batch], bool]:
        named = batches.c.id.startswith(prefix, autoescape=True)
        query = paged(select(batches).where(batches.c.tenant == tenant, named), batches.c.id, page)
        async with self._engine.connect() as connection:
            rows = (await connection.execute(query)).all()
        return [_batch(row) for row in rows[: page.limit]], len(rows) > page.limit

    async def recent(
        self, limit: int, statuses: Sequence[Status] | None = None, *, tenant: str | None = None
    ) -> Sequence[Batch]:
        query = select(batches).order_by(batches.c.created_at_us.desc(), batches.c.id).limit(limit)
        if statuses is not None:
            query = query.where(batches.c.status.in_(statuses))
        if tenant is not None:
            query = query.where(batches.c.tenant == tenant)
        async with self._engine.connect() as connection:
            return [_batch(row) for row in (await connection.execute(query)).all()]

    async def cancel(self, tenant: str, batch_id: str) -> Batch | None:
        async with writing(self._engine) as connection:
            found = await _locked(connection, batch_id)
            if found is None or found.tenant != tenant:
                return None
            return await self._cancelled(connection, _batch(found))

    async def stop(self, batch_id: str, *, author: str) -> Batch | None:
        async with writing(self._engine) as connection:
            found = await _locked(connection, batch_id)
            if found is None:
                return None
            batch = await self._cancelled(connection, _batch(found))
            if batch.status != found.status:
                at_us = self._now_us()
                await append_audit(connection, at_us=at_us, actor=author, action="batch.cancel", subject=batch_id)
            return batch

    async def _cancelled(self, connection: AsyncConnection, batch: Batch) -> Batch:
        if batch.status in UNDER_WAY and batch.status != "cancelling":
            batch = await self._moved(connection, batch, "cancelling")
            await connection.execute(update(batches).where(batches.c.id == batch.id).values(_row(batch)))
        return batch

    async def delete(self, batch: Batch) -> None:
        async with writing(self._engine) as connection:
            found = await _locked(connection, batch.id)
            if found is not None and found.status in UNDER_WAY:
                raise Conflict(f"{batch.id} is under way: cancel it first, or wait until it has ended.")
            await drop_files(connection, [batch.input_file_id, batch.output_file_id, batch.error_file_id])
            await connection.execute(delete(batches).where(batches.c.id == batch.id))

    async def claim(self, runner: str, *, seconds: float, most: int, besides: Collection[str] = ()) -> Sequence[Batch]:
        is_open = batches.c.status.in_(UNDER_WAY) & batches.c.tenant.not_in(besides)
        async with self._engine.connect() as connection:  # usually there is none, and no write lock is needed
            now = await shared_now_us(connection, self._now_us)
            is_held = batches.c.leased_until_us.between(now, now + _us(seconds))
            if (await connection.execute(select(batches.c.id).where(is_open & ~is_held).limit(1))).first() is None:
                return []
        async with writing(self._engine) as connection:
            now = await shared_now_us(connection, self._now_us)
            # Leases that end too late were taken when the clock was ahead: shortened, they still expire if their holder
            # is dead.
            ahead = update(batches).where(is_open, batches.c.leased_until_us > now + _us(seconds))
            await connection.execute(ahead.values(leased_until_us=now + _us(seconds)))
            free = select(batches).where(is_open, batches.c.leased_until_us < now).order_by(batches.c.id).limit(most)
            rows = (await connection.execute(free.with_for_update(skip_locked=True))).all()
            if rows:
                taken = update(batches).where(batches.c.id.in_([row.id for row in rows]))
                await connection.execute(taken.values(runner=runner, leased_until_us=now + _us(seconds)))
        return [_batch(row) for row in rows]

    async def done_lines(self, batch: Batch) -> set[int]:
        written = file_parts.c.file_id.in_([batch.output_file_id, batch.error_file_id])
        async with self._engine.connect() as connection:
            return set((await connection.execute(select(file_parts.c.place).where(written))).scalars())

    async def save(self, batch: Batch, results: Sequence[LineResult], *, runner: str, seconds: float) -> Batch | None:
        parts = [self._stored.row(_file_of(batch, one), one.line, one.text) for one in results]
        async with writing(self._engine) as connection:
            found = await _locked(connection, batch.id)
            if found is None or found.runner != runner:
                return None
            if parts:
                await connection.execute(insert_or_ignore(connection.dialect, file_parts), parts)
            stored = _batch(found)
            is_cancelled = stored.status == "cancelling" and batch.status in UNDER_WAY
            batch = msgspec.structs.replace(batch, times_us=stored.times_us)
            batch = await self._moved(connection, batch, "cancelling" if is_cancelled else batch.status)
            now = await shared_now_us(connection, self._now_us)
            if batch.status not in UNDER_WAY:
                await self._finish_files(connection, batch, now)
            values = _row(batch) | {"leased_until_us": now + _us(seconds)}
            await connection.execute(update(batches).where(batches.c.id == batch.id).values(values))
        return batch

    async def release(self, runner: str) -> None:
        mine = batches.c.status.in_(UNDER_WAY) & (batches.c.runner == runner)
        async with writing(self._engine) as connection:
            await connection.execute(update(batches).where(mine).values(runner=None, leased_until_us=0))

    async def forget(self, now_us: int, keep_us: int) -> int:
        forgotten, now_us = 0, await surely_now_us(self._engine, now_us)
        needed = select(batches.c.input_file_id).where(batches.c.status.in_(UNDER_WAY))
        is_broken_off = files.c.size_bytes.is_(None) & (files.c.created_at_us < now_us - HOUR_US)
        old = select(files.c.id).where((files.c.expires_at_us < now_us) | is_broken_off, files.c.id.not_in(needed))
        while True:
            async with writing(self._engine) as connection:
                ids = (await connection.execute(old.limit(FORGET_AT_ONCE))).scalars().all()
                await drop_files(connection, ids)
            forgotten += len(ids)
            if len(ids) < FORGET_AT_ONCE:
                break
        ended = delete(batches).where(batches.c.created_at_us < now_us - keep_us, batches.c.status.not_in(UNDER_WAY))
        async with writing(self._engine) as connection:
            return forgotten + (await connection.execute(ended)).rowcount

    async def _moved(self, connection: AsyncConnection, batch: Batch, status: Status) -> Batch:
        times = batch.times_us
        if status not in times:
            times = times | {status: await shared_now_us(connection, self._now_us)}
        return msgspec.structs.replace(batch, status=status, times_us=times)

    async def _finish_files(self, connection: AsyncConnection, batch: Batch, now: int) -> None:
        """Makes the written results readable as files."""
        said = batch.progress
        rows = [
            {
                "id": file_id,
                "tenant": batch.tenant,
                "purpose": OUTPUT,
                "name": f"{batch.id}_{what}.jsonl",
                "size_bytes": size,
                "created_at_us": now,
                "expires_at_us": now + batch.keep_us,
            }
            for file_id, what, lines, size in (
                (batch.output_file_id, "output", said.completed, said.output_bytes),
                (batch.error_file_id, "error", said.failed, said.error_bytes),
            )
            if lines
        ]
        if rows:
            await connection.execute(insert_or_ignore(connection.dialect, files), rows)


def _file_of(batch: Batch, result: LineResult) -> str:
    return batch.error_file_id if result.is_error else batch.output_file_id


async def _locked(connection: AsyncConnection, batch_id: str) -> Row[Any] | None:
    query = select(batches).where(batches.c.id == batch_id).with_for_update()
    return (await connection.execute(query)).first()


def _us(seconds: float) -> int:
    return int(seconds * 1_000_000)


def _row(batch: Batch) -> dict[str, Any]:
    """All columns but those of the lease."""
    said = ("asked", "progress", "problems", "times_us")
    plain = {name: getattr(batch, name) for name in batch.__struct_fields__ if name not in said}
    return plain | {name: _json(getattr(batch, name)) for name in said}


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _batch(row: Row[Any]) -> Batch:
    return Batch(
        row.id,
        row.tenant,
        row.key_id,
        row.status,
        row.created_at_us,
        row.deadline_us,
        row.keep_us,
        row.input_file_id,
        row.output_file_id,
        row.error_file_id,
        msgspec.json.decode(row.asked, type=Asked),
        msgspec.json.decode(row.progress, type=Progress),
        msgspec.json.decode(row.problems, type=tuple[LineProblem, ...]),
        msgspec.json.decode(row.times_us, type=dict[str, int]),
    )
