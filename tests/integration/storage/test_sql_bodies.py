"""Stored prompts: readable only with the key and for their own request, and deleted after their retention."""

import os

import pytest
from sqlalchemy import update
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.errors import StateError
from gateway.kept_answers.body_keeper import Bodies
from gateway.storage.partitions import drop_bodies_before
from gateway.storage.sql.audit import SqlAuditLog
from gateway.storage.sql.bodies import SqlBodies
from gateway.storage.tables.content import request_bodies
from tests.unit.gateway.ledger.builders import request_id

pytestmark = pytest.mark.integration
TEXT = b'{"messages": [{"role": "user", "content": "a canary sings"}]}' * 20


def make_bodies(number: int = 1, request: bytes = TEXT) -> Bodies:
    return Bodies(request_id(number), "key_1", request, b"data: [DONE]")


async def test_bodies_come_back_with_their_key_only(engine: AsyncEngine) -> None:
    key = os.urandom(32)
    store = SqlBodies(engine, key, now_us=lambda: 100)
    await store.put([make_bodies(1), make_bodies(3)])
    await store.put([make_bodies(1, b"other"), make_bodies(4)])
    assert await store.get(request_id(1)) == make_bodies(1)
    assert await store.get(request_id(4)) == make_bodies(4)
    assert await store.get(request_id(2)) is None
    assert await store.get("no id at all") is None
    async with engine.connect() as connection:
        rows = (await connection.execute(request_bodies.select())).all()
    assert len(rows) == 3
    assert not any(b"canary" in bytes(row.sealed) for row in rows)
    with pytest.raises(StateError, match="does not open"):
        await SqlBodies(engine, os.urandom(32)).get(request_id(1))


async def test_whoever_reads_a_text_stands_in_the_audit_log(engine: AsyncEngine) -> None:
    store = SqlBodies(engine, os.urandom(32))
    await store.put([make_bodies(1)])
    assert await store.read(request_id(1), reader="olga") == make_bodies(1)
    assert await store.read(request_id(2), reader="olga") is None
    [record] = await SqlAuditLog(engine).page(before=None, limit=10)
    assert (record.actor, record.action, record.subject) == ("olga", "bodies.read", request_id(1))


async def test_a_row_moved_to_another_request_does_not_open(engine: AsyncEngine) -> None:
    store = SqlBodies(engine, os.urandom(32))
    await store.put([make_bodies(1)])
    async with engine.begin() as connection:
        await connection.execute(update(request_bodies).values(request_id=bytes.fromhex(request_id(2))))
    with pytest.raises(StateError):
        await store.get(request_id(2))


async def test_old_bodies_are_deleted(engine: AsyncEngine) -> None:
    key = os.urandom(32)
    for at in (1, 2, 3):
        many = [make_bodies(1000 * at + number, b"short") for number in range(600)]
        await SqlBodies(engine, key, now_us=lambda at=at: at).put(many)
    assert await drop_bodies_before(engine, 3) == 1200  # more than are deleted at a time
    assert await SqlBodies(engine, key).get(request_id(3000)) == make_bodies(3000, b"short")
