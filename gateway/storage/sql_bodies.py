"""Prompts and answers of keys that opted in: compressed, sealed with AES-256-GCM, in a table with its own retention.

The request's id is authenticated with its text: a row that is moved to another request does not open.
"""

import os
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.errors import StateError
from gateway.storage.database import writing
from gateway.storage.interned import insert_or_ignore
from gateway.storage.tables import request_bodies

NONCE_BYTES = 12


@dataclass(frozen=True, slots=True)
class Bodies:
    """What the caller sent and what it got, as bytes of their wire formats."""

    request: bytes
    answer: bytes


class SqlBodies:
    """`key` is 32 secret bytes that are not in the database."""

    def __init__(
        self, engine: AsyncEngine, key: bytes, *, now_us: Callable[[], int] = lambda: time.time_ns() // 1000
    ) -> None:
        self._engine = engine
        self._cipher = AESGCM(key)
        self._now_us = now_us

    async def put(self, request_id: str, key_id: str, bodies: Bodies) -> None:
        """The first ones of a request stay."""
        number, nonce = bytes.fromhex(request_id), os.urandom(NONCE_BYTES)
        plain = zlib.compress(msgspec.msgpack.encode((bodies.request, bodies.answer)))
        row = {
            "request_id": number,
            "stored_at_us": self._now_us(),
            "key_id": key_id,
            "sealed": nonce + self._cipher.encrypt(nonce, plain, number),
        }
        async with writing(self._engine) as connection:
            await connection.execute(insert_or_ignore(connection, request_bodies).values(**row))

    async def get(self, request_id: str) -> Bodies | None:
        """None when nothing is stored. Raises StateError when it was sealed with another key, or altered."""
        number = bytes.fromhex(request_id)
        async with self._engine.connect() as connection:
            query = select(request_bodies.c.sealed).where(request_bodies.c.request_id == number)
            sealed = (await connection.execute(query)).scalar()
        if sealed is None:
            return None
        try:
            plain = self._cipher.decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], number)
        except InvalidTag as error:
            raise StateError(f"the stored text of request {request_id} does not open with this key") from error
        return Bodies(*msgspec.msgpack.decode(zlib.decompress(plain), type=tuple[bytes, bytes]))
