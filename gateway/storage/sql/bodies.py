"""Prompts and answers of keys that opted in: compressed, sealed with AES-256-GCM, in a table with its own retention.

The request's id is authenticated with its text: a row that is moved to another request does not open.
"""

import os
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.clock import now_us
from gateway.errors import StateError
from gateway.kept_answers.body_keeper import Bodies
from gateway.storage.database import writing
from gateway.storage.rows.interned import insert_or_ignore
from gateway.storage.sql.audit import append_audit
from gateway.storage.tables import request_bodies

NONCE_BYTES = 12


class SqlBodies:
    """A BodyStore and BodyReader. `key` is 32 secret bytes that are not in the database."""

    def __init__(self, engine: AsyncEngine, key: bytes, *, now_us: Callable[[], int] = now_us) -> None:
        self._engine = engine
        self._cipher = AESGCM(key)
        self._now_us = now_us

    async def put(self, batch: Sequence[Bodies]) -> None:
        """The first ones of a request stay."""
        rows = [self._sealed(bodies) for bodies in batch]
        async with writing(self._engine) as connection:
            await connection.execute(insert_or_ignore(connection, request_bodies), rows)

    async def get(self, request_id: str) -> Bodies | None:
        """None when nothing is stored. Raises StateError when it was sealed with another key, or altered."""
        try:
            number = bytes.fromhex(request_id)
        except ValueError:
            return None
        async with self._engine.connect() as connection:
            query = select(request_bodies.c.key_id, request_bodies.c.sealed)
            row = (await connection.execute(query.where(request_bodies.c.request_id == number))).first()
        if row is None:
            return None
        sealed = bytes(row.sealed)
        try:
            plain = self._cipher.decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], number)
        except InvalidTag as error:
            raise StateError(
                f"the stored text of request {request_id} does not open with this deployment's bodies-key; "
                "restore that file from the machine that stored it"
            ) from error
        request, answer = msgspec.msgpack.decode(zlib.decompress(plain), type=tuple[bytes, bytes])
        return Bodies(request_id, row.key_id, request, answer)

    async def read(self, request_id: str, *, reader: str) -> Bodies | None:
        """As `get`, with `reader` in the audit log before the text is handed out."""
        found = await self.get(request_id)
        if found is not None:
            async with writing(self._engine) as connection:
                await append_audit(
                    connection, at_us=self._now_us(), actor=reader, action="bodies.read", subject=request_id
                )
        return found

    def _sealed(self, bodies: Bodies) -> dict[str, Any]:
        number, nonce = bytes.fromhex(bodies.request_id), os.urandom(NONCE_BYTES)
        plain = zlib.compress(msgspec.msgpack.encode((bodies.request, bodies.answer)))
        return {
            "request_id": number,
            "stored_at_us": self._now_us(),
            "key_id": bodies.key_id,
            "sealed": nonce + self._cipher.encrypt(nonce, plain, number),
        }
