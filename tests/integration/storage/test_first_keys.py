"""Replicas that start together on an empty database: one of them creates the first two keys, and no other creates
any."""

import asyncio

import pytest

from gateway.access.keys import hash_key
from gateway.composition.first_keys import FirstKeys, create_first_keys
from gateway.storage.database import migrate_engine, open_database
from gateway.storage.sql.audit import SqlAuditLog
from gateway.storage.sql.keys import SqlKeyStore

pytestmark = pytest.mark.integration
PEPPER = b"p" * 32
REPLICAS = 4


async def start(database_url: str, together: asyncio.Barrier) -> FirstKeys | None:
    """Runs what a replica does before it serves."""
    database = open_database(database_url)
    try:
        await together.wait()
        await migrate_engine(database)
        await together.wait()
        return await create_first_keys(SqlKeyStore(database, PEPPER))
    finally:
        await database.dispose()


async def test_replicas_that_start_at_once_make_the_first_keys_once(database_url: str) -> None:
    together = asyncio.Barrier(REPLICAS)
    found = await asyncio.gather(*(start(database_url, together) for _ in range(REPLICAS)))
    [keys] = [one for one in found if one is not None]
    database = open_database(database_url)
    store = SqlKeyStore(database, PEPPER)
    roles = {key_hash: record.role for key_hash, record in (await store.records()).items()}
    assert roles == {hash_key(PEPPER, keys.owner): "owner", hash_key(PEPPER, keys.app): "app"}
    assert len(await SqlAuditLog(database).page(before=None, limit=9)) == 2
    await store.revoke((await store.list())[0].record.id, author="ada")
    assert await create_first_keys(store) is None, "a revoked key is a key"
    await database.dispose()
