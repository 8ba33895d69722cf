"""Stored prompts: only with the key, only for their own request, and gone after their retention."""

import os

import pytest
from sqlalchemy import update
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.errors import StateError
from gateway.storage.partitions import drop_bodies_before
from gateway.storage.sql_bodies import Bodies, SqlBodies
from gateway.storage.tables import request_bodies
from tests.unit.gateway.ledger.builders import request_id

pytestmark = pytest.mark.integration
BODIES = Bodies(b'{"messages": [{"role": "user", "content": "a canary sings"}]}' * 20, b"data: [DONE]")


async def test_bodies_come_back_with_their_key_only(engine: AsyncEngine) -> None:
    key = os.urandom(32)
    store = SqlBodies(engine, key, now_us=lambda: 100)
    await store.put(request_id(1), "key_1", BODIES)
    await store.put(request_id(1), "key_1", Bodies(b"other", b""))
    assert await store.get(request_id(1)) == BODIES
    assert await store.get(request_id(2)) is None
    async with engine.connect() as connection:
        row = (await connection.execute(request_bodies.select())).one()
    assert b"canary" not in bytes(row.sealed)
    with pytest.raises(StateError, match="does not open"):
        await SqlBodies(engine, os.urandom(32)).get(request_id(1))


async def test_a_row_moved_to_another_request_does_not_open(engine: AsyncEngine) -> None:
    store = SqlBodies(engine, os.urandom(32))
    await store.put(request_id(1), "key_1", BODIES)
    async with engine.begin() as connection:
        await connection.execute(update(request_bodies).values(request_id=bytes.fromhex(request_id(2))))
    with pytest.raises(StateError):
        await store.get(request_id(2))


async def test_old_bodies_are_deleted(engine: AsyncEngine) -> None:
    key = os.urandom(32)
    for number in (1, 2, 3):
        await SqlBodies(engine, key, now_us=lambda at=number: at).put(request_id(number), "key_1", BODIES)
    assert await drop_bodies_before(engine, 3) == 2
    assert await SqlBodies(engine, key).get(request_id(3)) == BODIES
