"""Prompts and answers of keys that opted in: compressed, sealed with AES-256-GCM, in a table with its own retention.

The request's id is authenticated with its text: a row that is moved to another request cannot be decrypted.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.clock import now_us
from gateway.kept_answers.body_keeper import Bodies
from gateway.storage.database import writing
from gateway.storage.rows.interned import insert_or_ignore
from gateway.storage.sql.audit import append_audit
from gateway.storage.sql.sealed import Seal
from gateway.storage.tables.content import request_bodies


class SqlBodies:
    """A BodyStore and BodyReader. `key` is 32 secret bytes that are not in the database."""

    def __init__(self, engine: AsyncEngine, key: bytes, *, now_us: Callable[[], int] = now_us) -> None:
        self._engine = engine
        self._seal = Seal(key, "bodies-key")
        self._now_us = now_us

    async def put(self, batch: Sequence[Bodies]) -> None:
        """Later bodies of the same request are ignored."""
        rows = [self._sealed(bodies) for bodies in batch]
        async with writing(self._engine) as connection:
            await connection.execute(insert_or_ignore(connection.dialect, request_bodies), rows)

    async def get(self, request_id: str) -> Bodies | None:
        """None if nothing is stored. Raises StateError if it was encrypted with another key, or altered."""
        try:
            number = bytes.fromhex(request_id)
        except ValueError:
            return None
        async with self._engine.connect() as connection:
            query = select(request_bodies.c.key_id, request_bodies.c.sealed)
            row = (await connection.execute(query.where(request_bodies.c.request_id == number))).first()
        if row is None:
            return None
        plain = self._seal.open(number, bytes(row.sealed), f"the stored text of request {request_id}")
        request, answer = msgspec.msgpack.decode(plain, type=tuple[bytes, bytes])
        return Bodies(request_id, row.key_id, request, answer)

    async def read(self, request_id: str, *, reader: str) -> Bodies | None:
        """Like `get`, recording `reader` in the audit log before returning the text."""
        found = await self.get(request_id)
        if found is not None:
            async with writing(self._engine) as connection:
                await append_audit(
                    connection, at_us=self._now_us(), actor=reader, action="bodies.read", subject=request_id
                )
        return found

    def _sealed(self, bodies: Bodies) -> dict[str, Any]:
        number = bytes.fromhex(bodies.request_id)
        return {
            "request_id": number,
            "stored_at_us": self._now_us(),
            "key_id": bodies.key_id,
            "sealed": self._seal.close(number, msgspec.msgpack.encode((bodies.request, bodies.answer))),
        }
