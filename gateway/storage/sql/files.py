"""Files uploaded by callers or written by batches: encrypted, in parts, each owned by one tenant."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Select, delete, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from gateway.batches.values import MESSAGES, UNDER_WAY, Asked, Page, StoredFile
from gateway.clock import now_us
from gateway.errors import BodyTooLarge, Conflict, NotFound
from gateway.storage.database import BATCHES_LOCK, lock, writing
from gateway.storage.sql.sealed import Seal
from gateway.storage.tables.content import batches, file_parts, files

READ_BYTES = 4 << 20
"""Stored bytes to fetch at once."""


class SqlFiles:
    """See gateway.batches.values.FileStore."""

    def __init__(self, engine: AsyncEngine, seal: Seal, *, now_us: Callable[[], int] = now_us) -> None:
        self._engine = engine
        self._seal = seal
        self._now_us = now_us

    async def write(self, file: StoredFile, parts: AsyncIterator[bytes], *, most_bytes: int) -> None:
        await self._reserve(file, most_bytes)
        try:
            size = await self._write_parts(file.id, parts)
            assert size == file.size_bytes
            whole = update(files).where(files.c.id == file.id).values(size_bytes=size)
            async with writing(self._engine) as connection:
                if not (await connection.execute(whole)).rowcount:
                    raise _gone(file.id)
        except BaseException:
            await asyncio.shield(self._drop(file.id))
            raise

    async def get(self, tenant: str, file_id: str) -> StoredFile | None:
        async with self._engine.connect() as connection:
            row = (await connection.execute(_whole(tenant).where(files.c.id == file_id))).mappings().first()
        return None if row is None else StoredFile(**row)

    async def list(self, tenant: str, page: Page, *, purpose: str | None) -> tuple[Sequence[StoredFile], bool]:
        query = _whole(tenant)
        if purpose is not None:
            query = query.where(files.c.purpose == purpose)
        async with self._engine.connect() as connection:
            rows = (await connection.execute(paged(query, files.c.id, page))).mappings().all()
        return [StoredFile(**row) for row in rows[: page.limit]], len(rows) > page.limit

    async def delete(self, tenant: str, file_id: str) -> bool:
        async with writing(self._engine) as connection:
            there = await connection.execute(_whole(tenant).where(files.c.id == file_id))
            if there.first() is None:
                return False
            reading = select(batches.c.id, batches.c.status, batches.c.asked).where(batches.c.input_file_id == file_id)
            for batch_id, status, asked in await connection.execute(reading):
                _require_unread(batch_id, status, asked)
            await drop_files(connection, [file_id])
        return True

    async def read(self, file_id: str) -> AsyncGenerator[bytes]:
        query = select(file_parts.c.place, func.length(file_parts.c.sealed).label("size")).where(
            file_parts.c.file_id == file_id
        )
        async with self._engine.connect() as connection:
            left = (await connection.execute(select(files.c.size_bytes).where(files.c.id == file_id))).scalar()
            sizes = (await connection.execute(query.order_by(file_parts.c.place))).all()
        if left is None:
            raise _gone(file_id)
        for first, last in _ranges([(row.place, row.size) for row in sizes]):
            for place, sealed in await self._fetch(file_id, first, last):
                text = await asyncio.to_thread(self._seal.open, _place(file_id, place), sealed, f"the file {file_id}")
                left -= len(text)
                yield text
        if left:
            raise _gone(file_id)

    def row(self, file_id: str, place: int, text: bytes) -> dict[str, object]:
        return {"file_id": file_id, "place": place, "sealed": self._seal.close(_place(file_id, place), text)}

    async def _reserve(self, file: StoredFile, most_bytes: int) -> None:
        """Inserts the file's row with the bytes it will take, so that concurrent uploads share the remaining space."""
        taken = func.sum(func.coalesce(files.c.size_bytes, files.c.reserved_bytes, 0))
        stored = select(func.coalesce(taken, 0)).where(files.c.tenant == file.tenant)
        async with writing(self._engine) as connection:
            await lock(connection, BATCHES_LOCK)
            left = max(0, most_bytes - int((await connection.execute(stored)).scalar_one()))
            if file.size_bytes > left:
                raise BodyTooLarge(
                    f"This file has {file.size_bytes:,} bytes, and this key's team has room for {left:,}: delete files "
                    "that are no longer needed, or raise batches.max_stored_megabytes in breakeven.yaml.",
                    code="files_full",
                )
            row = msgspec.structs.asdict(file) | {"size_bytes": None, "reserved_bytes": file.size_bytes}
            await connection.execute(files.insert().values(row))

    async def _write_parts(self, file_id: str, parts: AsyncIterator[bytes]) -> int:
        size = place = 0
        async for part in parts:
            size += len(part)
            row = await asyncio.to_thread(self.row, file_id, place, part)
            async with writing(self._engine) as connection:
                await connection.execute(file_parts.insert().values(row))
            place += 1
        return size

    async def _drop(self, file_id: str) -> None:
        async with writing(self._engine) as connection:
            await drop_files(connection, [file_id])

    async def _fetch(self, file_id: str, first: int, last: int) -> Sequence[tuple[int, bytes]]:
        query = select(file_parts.c.place, file_parts.c.sealed).where(
            file_parts.c.file_id == file_id, file_parts.c.place.between(first, last)
        )
        async with self._engine.connect() as connection:
            rows = (await connection.execute(query.order_by(file_parts.c.place))).all()
        return [(row.place, bytes(row.sealed)) for row in rows]


def _require_unread(batch_id: str, status: str, asked: str) -> None:
    """Raises Conflict if the batch still needs its input. A message batch needs it as long as it exists: its results
    name the requests that were not processed."""
    if status in UNDER_WAY:
        raise Conflict(f"The batch {batch_id} still reads this file: cancel it first, or wait.", code="file_in_use")
    if msgspec.json.decode(asked, type=Asked).endpoint == MESSAGES:
        raise Conflict(
            f"The results of the batch {batch_id} need this file, which is deleted with them: "
            f"DELETE {MESSAGES}/batches/{batch_id} deletes all of it.",
            code="file_in_use",
        )


def _gone(file_id: str) -> NotFound:
    return NotFound(f"The file {file_id} is no longer stored; GET /v1/files lists those that are.", code="not_found")


def _place(file_id: str, place: int) -> bytes:
    return f"{file_id}:{place}".encode()


def _whole(tenant: str) -> Select[*tuple[Any, ...]]:
    columns = [files.c[name] for name in StoredFile.__struct_fields__]
    return select(*columns).where(files.c.tenant == tenant, files.c.size_bytes.is_not(None))


def paged(query: Select[*tuple[Any, ...]], column: ColumnElement[str], page: Page) -> Select[*tuple[Any, ...]]:
    """Fetches one row more than the page has, which tells whether there are more. Ids sort by time."""
    if page.after is not None:
        query = query.where(column > page.after if page.is_oldest_first else column < page.after)
    return query.order_by(column if page.is_oldest_first else column.desc()).limit(page.limit + 1)


def _ranges(sizes: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """(first, last) places of consecutive parts with up to READ_BYTES together, or of a single larger part."""
    first = last = None
    held = 0
    for place, size in sizes:
        if first is not None and last is not None and held + size > READ_BYTES:
            yield first, last
            first, held = None, 0
        first, last, held = place if first is None else first, place, held + size
    if first is not None and last is not None:
        yield first, last


async def drop_files(connection: AsyncConnection, ids: Sequence[str]) -> None:
    """Deletes files and their parts."""
    await connection.execute(delete(file_parts).where(file_parts.c.file_id.in_(ids)))
    await connection.execute(delete(files).where(files.c.id.in_(ids)))
