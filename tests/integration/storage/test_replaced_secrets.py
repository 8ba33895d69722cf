"""Replaced secrets on both databases: which works until when, whatever clocks say, and what is remembered."""

import asyncio
import json
import time
from collections.abc import Callable

import pytest
from sqlalchemy import func, select, text, update
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.access.keys import KeyRing
from gateway.access.rotation import NewSecret, Overlaps
from gateway.errors import Conflict, Unauthenticated
from gateway.storage.database import migrate, open_database, writing
from gateway.storage.pepper import pepper_mark
from gateway.storage.sql.audit import SqlAuditLog
from gateway.storage.sql.keys import SqlKeyStore
from gateway.storage.sql.secrets import MOST_WORKING, REMEMBERED, SqlSecrets
from gateway.storage.tables.administration import api_keys, audit_log, replaced_secrets
from gateway.stores import NewKey
from tests.newest_schema import make_newest
from tests.postgres_server import empty_postgres

pytestmark = pytest.mark.integration
PEPPER = b"p" * 32
HOUR, DAY = 3600, 86_400


class Worker:
    """One of several workers, with its own key ring and its own monotonic clock."""

    def __init__(self, engine: AsyncEngine, now_us: Callable[[], int] | None = None) -> None:
        self.keys = SqlKeyStore(engine, PEPPER)
        self.secrets = SqlSecrets(engine, PEPPER, **({} if now_us is None else {"now_us": now_us}))
        self.uptime = 0.0
        self.ring = KeyRing(PEPPER, lambda: self.uptime)
        self.overlaps = Overlaps(self.ring, self.secrets)

    async def works(self, secret: str) -> bool:
        self.ring.replace(await self.keys.records(), await self.secrets.replaced())
        try:
            self.ring.authenticate(secret, time.time_ns() // 1000)
        except Unauthenticated:
            return False
        return True

    async def rotate(self, key_id: str, seconds: int) -> NewSecret:
        made = await self.secrets.rotate(key_id, overlap_seconds=seconds, author="bob")
        assert made is not None
        return made


async def a_key(engine: AsyncEngine) -> tuple[str, str]:
    listed, secret = await SqlKeyStore(engine, PEPPER).create(NewKey("app", team="red"), author="ada")
    return listed.record.id, secret


async def let_time_pass(engine: AsyncEngine, seconds: int) -> None:
    """Shifts every replacement into the past."""
    old = replaced_secrets.c
    async with writing(engine) as connection:
        moved = {one: one - seconds * 10**6 for one in (old.replaced_at_us, old.ends_at_us)}
        await connection.execute(update(replaced_secrets).values(moved))


async def test_both_secrets_are_one_key_in_every_worker_and_are_stored_as_hashes(engine: AsyncEngine) -> None:
    key_id, first = await a_key(engine)
    [here, there] = Worker(engine), Worker(engine)
    second = (await here.rotate(key_id, HOUR)).secret
    for worker in (here, there):
        assert [await worker.works(one) for one in (first, second)] == [True, True]
        records = [worker.ring.authenticate(one, 0) for one in (first, second)]
        assert {one.id for one in records} == {key_id}
        assert records[0].team == "red"
    rotation = (await there.secrets.rotations())[key_id]
    [old] = rotation.working
    assert old.ends_at_us - old.replaced_at_us == HOUR * 10**6
    assert (old.replaced_at_us, old.last_used_at_us) == (rotation.rotated_at_us, None)
    newest = (await SqlAuditLog(engine).page(before=None, limit=1))[0]
    assert (newest.actor, newest.action, newest.subject) == ("bob", "key.rotate", key_id)
    assert json.loads(newest.detail) == {
        "overlap_seconds": HOUR,
        "old_secrets_end_at_us": old.ends_at_us,
        "pepper": pepper_mark(PEPPER),
    }
    async with engine.connect() as connection:
        for table in (api_keys, audit_log, replaced_secrets):
            rows = repr((await connection.execute(table.select())).all())
            assert first[3:] not in rows
            assert second[3:] not in rows
    assert (await SqlAuditLog(engine).verify()).is_intact


async def test_what_is_over_never_comes_back_wherever_a_clock_is_put(engine: AsyncEngine) -> None:
    key_id, first = await a_key(engine)
    worker = Worker(engine)
    second = (await worker.rotate(key_id, HOUR)).secret
    assert await worker.works(first)
    worker.uptime += HOUR
    assert not await worker.works(first)
    await worker.overlaps.look()
    await worker.overlaps.look()
    newest = (await SqlAuditLog(engine).page(before=None, limit=9))[0]
    assert (newest.action, newest.reason) == ("key.overlap_end", "its time was over")
    assert len(await SqlAuditLog(engine).page(before=None, limit=9)) == 3, "it ended once"
    await let_time_pass(engine, -10 * DAY)
    for now_us in (lambda: 0, lambda: 2**52, None):
        started = Worker(engine, now_us)
        assert [await started.works(one) for one in (first, second)] == [False, True]
    assert (await worker.secrets.rotations())[key_id].working == ()


async def test_a_worker_that_starts_after_the_end_refuses_at_once(engine: AsyncEngine) -> None:
    key_id, first = await a_key(engine)
    await Worker(engine).rotate(key_id, HOUR)
    await let_time_pass(engine, HOUR + 1)
    started = Worker(engine)
    assert (await started.secrets.rotations())[key_id].working == ()
    assert not await started.works(first)
    await started.overlaps.look()
    await let_time_pass(engine, -DAY)
    assert not await Worker(engine).works(first)


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)  # with SQLite all share one clock
@pytest.mark.parametrize("ahead_us", [-(10**13), 10**13])
async def test_replicas_agree_on_an_end_though_the_clock_of_one_is_wrong(engine: AsyncEngine, ahead_us: int) -> None:
    key_id, first = await a_key(engine)
    wrong = Worker(engine, lambda: time.time_ns() // 1000 + ahead_us)
    made = await wrong.rotate(key_id, HOUR)
    right = Worker(engine)
    assert (await right.secrets.rotations())[key_id].working[0].ends_at_us == made.ends_at_us
    for worker in (wrong, right):
        assert await worker.works(first)
        worker.uptime += HOUR - 60
        assert await worker.works(first)
        worker.uptime += 60
        assert not await worker.works(first)


async def test_an_overlap_of_nothing_ends_every_older_secret(engine: AsyncEngine) -> None:
    key_id, first = await a_key(engine)
    worker = Worker(engine)
    second = (await worker.rotate(key_id, DAY)).secret
    third = (await worker.rotate(key_id, 0)).secret
    assert [await worker.works(one) for one in (first, second, third)] == [False, False, True]
    assert (await worker.secrets.rotations())[key_id].working == ()


async def test_rotating_again_keeps_ends_that_were_told_and_lets_none_outlive_the_new_overlap(
    engine: AsyncEngine,
) -> None:
    key_id, first = await a_key(engine)
    worker = Worker(engine)
    second = await worker.rotate(key_id, DAY)
    third = await worker.rotate(key_id, 2 * DAY)
    assert [await worker.works(one) for one in (first, second.secret, third.secret)] == [True] * 3
    assert [one.ends_at_us for one in (await worker.secrets.rotations())[key_id].working] == [
        third.ends_at_us,
        second.ends_at_us,
    ]
    last = await worker.rotate(key_id, HOUR)
    ends = {one.ends_at_us for one in (await worker.secrets.rotations())[key_id].working}
    assert ends == {last.ends_at_us}
    assert await worker.works(first)
    worker.uptime += HOUR
    for one in (first, second.secret, third.secret):
        assert not await worker.works(one)
    assert await worker.works(last.secret)


async def test_of_rotations_at_the_same_moment_each_counts_and_the_last_is_the_newest(engine: AsyncEngine) -> None:
    key_id, first = await a_key(engine)
    workers = [Worker(engine) for _ in range(3)]
    made = await asyncio.gather(*(worker.rotate(key_id, HOUR) for worker in workers))
    for secret in (first, *(one.secret for one in made)):
        assert await workers[0].works(secret)
    assert len((await workers[0].secrets.rotations())[key_id].working) == 3
    await workers[1].secrets.end_overlap(key_id, author="bob")
    assert sum([await workers[2].works(one.secret) for one in made]) == 1


async def test_too_many_at_once_are_refused_until_their_overlap_is_ended(engine: AsyncEngine) -> None:
    key_id, first = await a_key(engine)
    worker = Worker(engine)
    for _ in range(MOST_WORKING):
        await worker.rotate(key_id, HOUR)
    with pytest.raises(Conflict, match="4 older secrets of the key 'app' still work; end their overlap first"):
        await worker.rotate(key_id, HOUR)
    assert await worker.works(first)
    assert await worker.secrets.end_overlap(key_id, author="bob")
    assert await worker.secrets.end_overlap(key_id, author="bob")
    newest = await SqlAuditLog(engine).page(before=None, limit=2)
    assert [(one.actor, one.action) for one in newest] == [("bob", "key.overlap_end"), ("bob", "key.rotate")]
    await worker.rotate(key_id, HOUR)
    assert not await worker.secrets.end_overlap("key_none", author="bob")
    assert await worker.secrets.rotate("key_none", overlap_seconds=0, author="bob") is None


async def test_a_key_that_is_over_has_no_new_secret(engine: AsyncEngine) -> None:
    keys, worker = SqlKeyStore(engine, PEPPER), Worker(engine)
    expired, _ = await keys.create(NewKey("gone", expires_at_us=1), author="ada")
    key_id, first = await a_key(engine)
    second = (await worker.rotate(key_id, HOUR)).secret
    await keys.revoke(key_id, author="ada")
    assert [await worker.works(one) for one in (first, second)] == [False, False]
    for dead, said in (
        (key_id, "was revoked; create another"),
        (expired.record.id, "has expired; extend its end"),
    ):
        with pytest.raises(Conflict, match=said):
            await worker.rotate(dead, 0)


async def test_the_last_use_is_the_latest_that_any_worker_saw_and_changes_no_key(engine: AsyncEngine) -> None:
    key_id, first = await a_key(engine)
    [here, there] = Worker(engine), Worker(engine)
    await here.rotate(key_id, HOUR)
    head = await SqlAuditLog(engine).head()
    for worker, seconds_ago in ((here, 5), (there, 50)):
        assert await worker.works(first)
        worker.uptime += seconds_ago
        await worker.overlaps.look()
    [old] = (await there.secrets.rotations())[key_id].working
    assert old.last_used_at_us is not None
    assert 5e6 <= time.time_ns() // 1000 - old.last_used_at_us < 45e6
    assert await SqlAuditLog(engine).head() == head


async def test_workers_that_saw_old_secrets_in_different_orders_do_not_lock_each_other_out(
    postgres_directory: str,
) -> None:
    await make_newest(url := await empty_postgres(postgres_directory))
    engine = open_database(url)
    worker, old = Worker(engine), replaced_secrets.c
    key_id, _ = await a_key(engine)
    for _ in range(2):
        await worker.rotate(key_id, HOUR)
    one, other = sorted(await worker.secrets.replaced())
    noting: list[asyncio.Task[None]] = []
    async with writing(engine) as connection:
        await connection.execute(select(old.hash).where(old.hash == one).with_for_update())
        for used in ((one, other), (other, one)):
            noting.append(asyncio.create_task(worker.secrets.note_uses(dict.fromkeys(used, 0.0))))
            while await connection.scalar(text("SELECT count(*) FROM pg_locks WHERE NOT granted")) < len(noting):
                await asyncio.sleep(0.01)
    await asyncio.gather(*noting)
    await engine.dispose()


async def test_only_the_newest_withdrawn_secrets_are_remembered(engine: AsyncEngine) -> None:
    key_id, _ = await a_key(engine)
    other, kept = await a_key(engine)
    worker = Worker(engine)
    secret = ""
    await worker.rotate(other, HOUR)
    for _ in range(REMEMBERED + 3):
        secret = (await worker.rotate(key_id, 0)).secret
    assert await worker.works(secret)
    assert await worker.works(kept)
    async with engine.connect() as connection:
        count = select(func.count()).where(replaced_secrets.c.key_id == key_id)
        assert (await connection.execute(count)).scalar_one() == REMEMBERED


async def test_an_older_schema_knows_the_newest_secret_alone(engine: AsyncEngine) -> None:
    key_id, first = await a_key(engine)
    second = (await Worker(engine).rotate(key_id, HOUR)).secret
    url = engine.url.render_as_string(hide_password=False)
    await migrate(url, "0013")
    records = await SqlKeyStore(engine, PEPPER).records()
    await migrate(url)
    worker = Worker(engine)
    assert [await worker.works(one) for one in (first, second)] == [False, True]
    assert list(records.values()) == list((await worker.keys.records()).values())
