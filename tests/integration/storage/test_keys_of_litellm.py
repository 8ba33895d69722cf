"""Keys that were LiteLLM's on both databases: each is taken over once, whatever becomes of it here."""

import asyncio
import json
import time

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.access.keys import KeyRing
from gateway.errors import Unauthenticated
from gateway.storage.database import migrate
from gateway.storage.pepper import pepper_mark
from gateway.storage.sql.audit import SqlAuditLog
from gateway.storage.sql.keys import SqlKeyStore
from gateway.storage.sql.secrets import SqlSecrets
from gateway.storage.tables import api_keys, audit_log, litellm_keys
from gateway.stores import ListedKey, NewKey
from tests.litellm_database import hash_token

pytestmark = pytest.mark.integration
PEPPER = b"p" * 32
SECRET = "sk-of-litellm"
DIGEST = bytes.fromhex(hash_token(SECRET))
LIMITS = {"requests_per_minute": 7}


async def take_over(engine: AsyncEngine, *, pepper: bytes = PEPPER) -> tuple[ListedKey, bool]:
    return await SqlKeyStore(engine, pepper).take_over(NewKey("app", team="red"), DIGEST, author="ada", limits=LIMITS)


async def ring(engine: AsyncEngine) -> KeyRing:
    keys, made = SqlKeyStore(engine, PEPPER), KeyRing(PEPPER)
    replaced = await SqlSecrets(engine, PEPPER).replaced()
    made.replace(await keys.records(), replaced, has_litellms=await keys.has_litellms())
    return made


async def works(engine: AsyncEngine, secret: str = SECRET) -> bool:
    try:
        (await ring(engine)).authenticate(secret, time.time_ns() // 1000)
    except Unauthenticated:
        return False
    return True


async def test_it_works_with_its_limits_and_no_hash_of_litellms_is_kept(engine: AsyncEngine) -> None:
    keys = SqlKeyStore(engine, PEPPER)
    assert not await keys.has_litellms()
    listed, is_made = await take_over(engine)
    assert is_made
    assert (await ring(engine)).authenticate(SECRET, 0) == listed.record
    assert await keys.limits() == {listed.record.id: LIMITS}
    assert await keys.litellms() == {listed.record.id}
    assert (await keys.taken_over([DIGEST, b"x" * 32])) == {DIGEST: listed}
    newest = (await SqlAuditLog(engine).page(before=None, limit=1))[0]
    detail = json.loads(newest.detail)
    assert (newest.action, detail["pepper"], detail["secret"]) == ("key.create", pepper_mark(PEPPER), "LiteLLM's")
    async with engine.connect() as connection:
        for table in (api_keys, audit_log, litellm_keys):
            rows = (await connection.execute(table.select())).all()
            assert DIGEST not in [value for row in rows for value in row]
            assert DIGEST.hex() not in repr(rows)
    assert (await SqlAuditLog(engine).verify()).is_intact


async def test_taken_over_again_it_is_the_same_key_and_stays_as_it_is(engine: AsyncEngine) -> None:
    keys, secrets = SqlKeyStore(engine, PEPPER), SqlSecrets(engine, PEPPER)
    key_id = (await take_over(engine))[0].record.id
    await keys.change(key_id, {"team": "blue", "limits": {}}, author="bob")
    again, is_made = await take_over(engine)
    assert (again.record.id, again.record.team, is_made) == (key_id, "blue", False)
    rotated = await secrets.rotate(key_id, overlap_seconds=0, author="bob")
    assert rotated is not None
    assert [await works(engine, one) for one in (SECRET, rotated.secret)] == [False, True]
    for _ in range(10):  # until the first secret is forgotten
        await secrets.rotate(key_id, overlap_seconds=0, author="bob")
    assert (await take_over(engine))[0].record.id == key_id
    await keys.revoke(key_id, author="bob")
    again, is_made = await take_over(engine)
    assert (again.record.revoked_at_us is not None, is_made) == (True, False)
    assert not await works(engine)
    assert len(await keys.list()) == 1


async def test_several_imports_at_once_make_one_key(engine: AsyncEngine) -> None:
    made = await asyncio.gather(*(take_over(engine) for _ in range(4)))
    assert len({listed.record.id for listed, _ in made}) == 1
    assert sorted(is_made for _, is_made in made) == [False, False, False, True]


@pytest.mark.parametrize("is_rotated", [False, True])
async def test_an_older_version_refuses_it_and_the_next_import_finds_it_again(
    engine: AsyncEngine, is_rotated: bool
) -> None:
    key_id = (await take_over(engine))[0].record.id
    if is_rotated:
        await SqlSecrets(engine, PEPPER).rotate(key_id, overlap_seconds=3600, author="bob")
    url = engine.url.render_as_string(hide_password=False)
    await migrate(url, "0020")
    await migrate(url)
    assert not await works(engine)
    head = await SqlAuditLog(engine).head()
    again, is_made = await take_over(engine)
    assert (again.record.id, is_made) == (key_id, False)
    assert await works(engine)
    assert await SqlAuditLog(engine).head() != head, "running workers take it over"


async def test_with_another_pepper_it_is_another_key(engine: AsyncEngine) -> None:
    first = (await take_over(engine))[0].record.id
    again, is_made = await take_over(engine, pepper=b"q" * 32)
    assert is_made
    assert again.record.id != first
