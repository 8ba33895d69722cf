"""Files and batches in both databases: complete or absent, encrypted, with one runner at a time, finally deleted."""

import asyncio
import os
from collections.abc import AsyncGenerator

import msgspec
import pytest
from sqlalchemy import ColumnElement, func, select, update
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.batches.lines import Line, answered
from gateway.batches.values import INPUT, OUTPUT, Batch, LineResult, Page, Progress, StoredFile, Tokens
from gateway.clock import now_us
from gateway.errors import BodyTooLarge, Conflict, NotFound, StateError
from gateway.instants import DAY_US, HOUR_US
from gateway.storage.sql.batches import SqlBatches
from gateway.storage.sql.files import READ_BYTES, SqlFiles
from gateway.storage.sql.sealed import Seal
from gateway.storage.tables.content import batches, file_parts, files
from tests.unit.gateway.batches.builders import make_batch

pytestmark = pytest.mark.integration
TENANT = "team red"
NEWEST_FIRST = Page(10)


class Clock:
    def __init__(self) -> None:
        self.now_us = 1_000_000_000

    def __call__(self) -> int:
        return self.now_us


def stores(engine: AsyncEngine, clock: Clock | None = None, secret: bytes = bytes(32)) -> tuple[SqlFiles, SqlBatches]:
    now_us = clock or Clock()
    made = SqlFiles(engine, Seal(secret, "pepper"), now_us=now_us)
    return made, SqlBatches(engine, made, now_us=now_us)


def make_file(
    name: str = "file-1", *, size_bytes: int = 3, expires_at_us: int = 1 << 62, tenant: str = TENANT
) -> StoredFile:
    return StoredFile(name, tenant, INPUT, "in.jsonl", size_bytes, 1, expires_at_us)


async def parts(*given: bytes) -> AsyncGenerator[bytes]:
    for part in given:
        yield part


async def whole(store: SqlFiles, file_id: str) -> bytes:
    return b"".join([part async for part in store.read(file_id)])


def result(line: int, *, is_error: bool = False, text: bytes = b'"a canary"') -> LineResult:
    return answered(Line(line, f"{line}", b""), 500 if is_error else 200, "0", text, cost_pico_usd=7)


async def count(engine: AsyncEngine, column: ColumnElement[str]) -> int:
    async with engine.connect() as connection:
        return (await connection.execute(select(func.count(column)))).scalar_one()


async def test_a_file_comes_back_as_it_came(engine: AsyncEngine) -> None:
    store, _ = stores(engine)
    given = [b"a canary sings " * 100_000, b"", bytes(range(256)) * 9000, b"end"]
    file = make_file(size_bytes=len(b"".join(given)))
    await store.write(file, parts(*given), most_bytes=1 << 30)
    assert await store.get(TENANT, file.id) == file
    assert await store.get("team blue", file.id) is None
    assert await whole(store, file.id) == b"".join(given)
    async with engine.connect() as connection:
        sealed = (await connection.execute(select(file_parts.c.sealed))).scalars().all()
    assert not any(b"canary" in bytes(one) for one in sealed)
    stranger, _ = stores(engine, secret=bytes(31) + b"x")
    with pytest.raises(StateError, match=r"the file file-1 does not open with this deployment's pepper"):
        await whole(stranger, file.id)


async def test_a_file_that_is_forgotten_while_it_is_read_does_not_end_as_if_it_were_whole(engine: AsyncEngine) -> None:
    store, made = stores(engine)
    file = make_file(size_bytes=READ_BYTES + 3, expires_at_us=1)
    await store.write(file, parts(os.urandom(READ_BYTES), b"end"), most_bytes=1 << 30)
    reading = store.read("file-1")
    assert len(await anext(reading)) == READ_BYTES
    assert await made.forget(2, DAY_US) == 1
    with pytest.raises(NotFound, match="file-1 is no longer stored"):
        await anext(reading)
    with pytest.raises(NotFound):
        await whole(store, "file-1")


async def test_a_part_moved_to_another_place_does_not_open(engine: AsyncEngine) -> None:
    store, _ = stores(engine)
    await store.write(make_file(), parts(b"one"), most_bytes=10)
    async with engine.begin() as connection:
        await connection.execute(update(file_parts).values(place=1))
    with pytest.raises(StateError):
        await whole(store, "file-1")


async def test_what_breaks_off_leaves_nothing(engine: AsyncEngine) -> None:
    store, _ = stores(engine)

    async def broken() -> AsyncGenerator[bytes]:
        yield b"half"
        assert await store.get(TENANT, "file-1") is None, "it is not there before it is whole"
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        await store.write(make_file(), broken(), most_bytes=10)
    assert (await count(engine, files.c.id), await count(engine, file_parts.c.file_id)) == (0, 0)
    await store.write(make_file(size_bytes=10), parts(b"1234567890"), most_bytes=10)  # nor does it take up space


async def test_uploads_that_come_at_once_share_what_there_is_room_for(engine: AsyncEngine) -> None:
    store, _ = stores(engine)
    begun, goes_on = asyncio.Event(), asyncio.Event()

    async def slowly() -> AsyncGenerator[bytes]:
        begun.set()
        await goes_on.wait()
        yield b"1234"

    uploading = asyncio.create_task(store.write(make_file("slow", size_bytes=4), slowly(), most_bytes=10))
    await begun.wait()
    with pytest.raises(BodyTooLarge, match=r"has 7 bytes, and this key's team has room for 6: .*max_stored_megabytes"):
        await store.write(make_file(size_bytes=7), parts(b"1234567"), most_bytes=10)
    await store.write(make_file("blue", tenant="team blue", size_bytes=10), parts(b"1234567890"), most_bytes=10)
    others = (store.write(make_file(f"file-{n}"), parts(b"one"), most_bytes=10) for n in range(8))
    refused = [one for one in await asyncio.gather(*others, return_exceptions=True) if one is not None]
    assert [type(one) for one in refused] == [BodyTooLarge] * 6
    goes_on.set()
    await uploading
    assert len((await store.list(TENANT, NEWEST_FIRST, purpose=None))[0]) == 3


async def test_an_upload_that_was_given_up_for_broken_off_is_not_there(engine: AsyncEngine) -> None:
    store, made = stores(engine)

    async def for_hours() -> AsyncGenerator[bytes]:
        yield b"one"
        assert await made.forget(2 * HOUR_US, DAY_US) == 1

    with pytest.raises(NotFound, match="file-1 is no longer stored"):
        await store.write(make_file(), for_hours(), most_bytes=10)
    assert await count(engine, file_parts.c.file_id) == 0


async def test_one_runner_at_a_time_has_a_batch(engine: AsyncEngine) -> None:
    """However many try at once, until its lease has expired."""
    clock = Clock()
    _, store = stores(engine, clock)
    for number in range(6):
        assert await store.create(make_batch(id=f"batch_{number}"), most_under_way=10)
    claims = await asyncio.gather(*(store.claim(f"runner-{n}", seconds=30, most=2) for n in range(4)))
    assert sorted(one.id for claim in claims for one in claim) == [f"batch_{number}" for number in range(6)]
    assert not await store.claim("late", seconds=30, most=10)
    if engine.dialect.name == "sqlite":  # PostgreSQL has its own clock
        clock.now_us += 31_000_000
        assert len(await store.claim("late", seconds=30, most=10)) == 6


async def test_a_lease_of_a_clock_that_was_days_ahead_ends_as_others_do(engine: AsyncEngine) -> None:
    """A living runner renews it within seconds; a dead one used to block the batch for days."""
    _, store = stores(engine)
    await store.create(make_batch(), most_under_way=1)
    await store.claim("me", seconds=30, most=1)
    async with engine.begin() as connection:
        [right] = (await connection.execute(select(batches.c.leased_until_us))).scalars()
        await connection.execute(update(batches).values(leased_until_us=right + 3 * DAY_US))
    assert not await store.claim("late", seconds=30, most=1), "it may live"
    async with engine.connect() as connection:
        [shortened] = (await connection.execute(select(batches.c.leased_until_us))).scalars()
    assert right <= shortened < right + HOUR_US


async def test_whose_share_is_taken_waits_and_others_do_not(engine: AsyncEngine) -> None:
    _, store = stores(engine)
    for number, tenant in enumerate(("team red", "team red", "team blue")):
        await store.create(make_batch(id=f"batch_{number}", tenant=tenant), most_under_way=9)
    found = await store.claim("me", seconds=30, most=9, besides=["team red"])
    assert [one.id for one in found] == ["batch_2"]
    assert [one.id for one in await store.claim("me", seconds=30, most=9)] == ["batch_0", "batch_1"]


async def test_results_are_stored_once_with_what_has_come_of_the_batch(engine: AsyncEngine) -> None:
    stored, store = stores(engine)
    await store.create(make_batch(), most_under_way=1)
    [batch] = await store.claim("me", seconds=30, most=1)
    found = [result(3), result(1), result(2, is_error=True)]
    sizes = [len(one.text) for one in found]
    told = Progress(3, 2, 1, sizes[0] + sizes[1], sizes[2], Tokens(1, 2, 3, 4), 7, 1)
    batch = msgspec.structs.replace(batch, status="in_progress", progress=told)
    kept = await store.save(batch, found, runner="me", seconds=30)
    assert await store.save(batch, found, runner="me", seconds=30) == kept  # a retry after a save whose answer was lost
    assert kept is not None
    assert await store.get(TENANT, batch.id) == kept
    assert (kept.status, kept.progress) == ("in_progress", told)
    assert set(kept.times_us) == {"in_progress"}
    assert await store.done_lines(batch) == {1, 2, 3}
    assert await stored.get(TENANT, batch.output_file_id) is None, "it is not there before it is whole"

    assert await store.save(batch, [result(4)], runner="another", seconds=30) is None
    assert await store.done_lines(batch) == {1, 2, 3}

    done = await store.save(msgspec.structs.replace(kept, status="completed"), [], runner="me", seconds=30)
    assert done is not None
    output = await stored.get(TENANT, batch.output_file_id)
    assert output is not None
    assert (output.purpose, output.size_bytes, output.name) == (OUTPUT, told.output_bytes, "batch_1_output.jsonl")
    assert await whole(stored, output.id) == result(1).text + result(3).text, "in the order of the lines"
    assert await whole(stored, batch.error_file_id) == result(2, is_error=True).text
    assert not await store.claim("me", seconds=30, most=1), "nothing is left to do"


async def test_who_cancels_is_heard_by_who_works(engine: AsyncEngine) -> None:
    _, store = stores(engine)
    await store.create(make_batch(), most_under_way=1)
    [batch] = await store.claim("me", seconds=30, most=1)
    assert await store.cancel("team blue", batch.id) is None
    asked = await store.cancel(TENANT, batch.id)
    assert asked is not None
    assert asked.status == "cancelling"
    working = msgspec.structs.replace(batch, status="in_progress")
    heard = await store.save(working, [], runner="me", seconds=30)
    assert heard is not None
    assert (heard.status, set(heard.times_us)) == ("cancelling", {"cancelling"})
    ended = await store.save(msgspec.structs.replace(heard, status="cancelled"), [], runner="me", seconds=30)
    assert ended is not None
    assert (await store.cancel(TENANT, batch.id)) == ended, "what is over stays as it ended"


async def test_how_many_are_under_way_is_bounded_by_team(engine: AsyncEngine) -> None:
    _, store = stores(engine)
    made = [await store.create(make_batch(id=f"batch_{n}"), most_under_way=2) for n in range(3)]
    assert made == [True, True, False]
    assert await store.create(make_batch(id="batch_x", tenant="team blue"), most_under_way=2)
    await store.claim("me", seconds=30, most=10)
    await store.save(make_batch(id="batch_0", status="completed"), [], runner="me", seconds=30)
    assert await store.create(make_batch(id="batch_2"), most_under_way=2)


async def test_of_batches_that_are_made_at_once_no_more_are_under_way(engine: AsyncEngine) -> None:
    _, store = stores(engine)
    made = await asyncio.gather(*(store.create(make_batch(id=f"batch_{n}"), most_under_way=3) for n in range(10)))
    assert sorted(made) == [False] * 7 + [True] * 3


async def test_what_a_batch_still_reads_is_not_deleted(engine: AsyncEngine) -> None:
    stored, store = stores(engine)
    file = make_file()
    await stored.write(file, parts(b"one"), most_bytes=10)
    await store.create(make_batch(input_file_id=file.id), most_under_way=1)
    with pytest.raises(Conflict, match="batch_1 still reads this file"):
        await stored.delete(TENANT, file.id)
    await store.claim("me", seconds=30, most=1)
    await store.save(make_batch(input_file_id=file.id, status="failed"), [], runner="me", seconds=30)
    assert not await stored.delete("team blue", file.id)
    assert await stored.delete(TENANT, file.id)
    assert (await count(engine, files.c.id), await count(engine, file_parts.c.file_id)) == (0, 0)


async def test_what_is_old_is_forgotten_but_what_is_needed(engine: AsyncEngine) -> None:
    clock = Clock()
    stored, store = stores(engine, clock)
    clock.now_us = 40 * DAY_US
    for number in range(150):  # more than are deleted at a time
        await stored.write(make_file(f"old-{number}", expires_at_us=39 * DAY_US), parts(b"one"), most_bytes=1000)
    await stored.write(make_file("needed", expires_at_us=39 * DAY_US), parts(b"one"), most_bytes=1000)
    await stored.write(make_file("new", expires_at_us=41 * DAY_US), parts(b"one"), most_bytes=1000)
    await store.create(make_batch(id="batch_a", input_file_id="needed"), most_under_way=9)
    await store.create(make_batch(id="batch_b", created_at_us=9 * DAY_US), most_under_way=9)
    await store.create(make_batch(id="batch_c", created_at_us=11 * DAY_US), most_under_way=9)
    async with engine.begin() as connection:
        over = update(batches).where(batches.c.id != "batch_a").values(status="completed")
        await connection.execute(over)
        await connection.execute(files.insert().values({**BROKEN_OFF, "created_at_us": 38 * DAY_US}))
    assert await store.forget(clock.now_us, 30 * DAY_US) == 152
    left, _ = await stored.list(TENANT, NEWEST_FIRST, purpose=None)
    assert [one.id for one in left] == ["new", "needed"]
    kept, _ = await store.list(TENANT, NEWEST_FIRST, prefix="batch_")
    assert [one.id for one in kept] == ["batch_c", "batch_a"]


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
async def test_a_replica_whose_clock_is_ahead_of_the_servers_deletes_no_file_sooner(engine: AsyncEngine) -> None:
    stored, store = stores(engine)
    await stored.write(make_file(expires_at_us=now_us() + DAY_US), parts(b"one"), most_bytes=1000)
    assert await store.forget(now_us() + 40 * DAY_US, 30 * DAY_US) == 0


BROKEN_OFF = {"id": "half", "tenant": TENANT, "purpose": INPUT, "name": "x", "expires_at_us": 1 << 62}


async def test_pages_follow_one_another(engine: AsyncEngine) -> None:
    stored, store = stores(engine)
    for number in range(5):
        await stored.write(make_file(f"file-{number}"), parts(b"one"), most_bytes=1000)
        await store.create(make_batch(id=f"batch_{number}"), most_under_way=9)
    page, has_more = await stored.list(TENANT, Page(2), purpose=None)
    assert ([one.id for one in page], has_more) == (["file-4", "file-3"], True)
    page, has_more = await stored.list(TENANT, Page(3, "file-3"), purpose=INPUT)
    assert ([one.id for one in page], has_more) == (["file-2", "file-1", "file-0"], False)
    page, has_more = await stored.list(TENANT, Page(2, "file-1", is_oldest_first=True), purpose=None)
    assert ([one.id for one in page], has_more) == (["file-2", "file-3"], True)
    listed, has_more = await store.list(TENANT, Page(4, "batch_4"), prefix="batch_")
    assert ([one.id for one in listed], has_more) == (["batch_3", "batch_2", "batch_1", "batch_0"], False)
    assert await store.list("team blue", Page(4), prefix="batch_") == ([], False)
    assert await store.list(TENANT, Page(4), prefix="batch_4_") == ([], False)
    assert await store.list(TENANT, Page(4), prefix="batchx4") == ([], False), "no letter of it stands for others"


async def test_a_released_batch_is_anybodys(engine: AsyncEngine) -> None:
    _, store = stores(engine)
    await store.create(make_batch(), most_under_way=1)
    await store.claim("me", seconds=30, most=1)
    await store.release("another")
    assert not await store.claim("late", seconds=30, most=1)
    await store.release("me")
    found: list[Batch] = list(await store.claim("late", seconds=30, most=1))
    assert [one.id for one in found] == ["batch_1"]
