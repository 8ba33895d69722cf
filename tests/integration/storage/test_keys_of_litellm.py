"""Importing LiteLLM's keys, on both databases: each is imported once, whatever happens to it here."""

import asyncio
import hashlib
import json
import time
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.access.keys import KeyRing
from gateway.errors import BudgetExhausted, Unauthenticated
from gateway.instants import DAY_US, microseconds
from gateway.limits.admission import Admission
from gateway.limits.counters import budget_account
from gateway.limits.openings import Opening, OpeningScope, by_budget
from gateway.limits.spending import Spending
from gateway.limits.values import parse_limits
from gateway.storage.database import migrate
from gateway.storage.pepper import pepper_mark
from gateway.storage.sql.audit import SqlAuditLog
from gateway.storage.sql.keys import SqlKeyStore
from gateway.storage.sql.litellm_keys import LiteLLMKey, SqlLiteLLMKeys
from gateway.storage.sql.openings import SqlOpenings
from gateway.storage.sql.reports import SqlReports
from gateway.storage.sql.secrets import SqlSecrets
from gateway.storage.tables.administration import api_keys, audit_log, litellm_keys
from gateway.stores import ListedKey, NewKey
from tests.litellm_database import hash_token

pytestmark = pytest.mark.integration
PEPPER = b"p" * 32
SECRET = "sk-of-litellm"
DIGEST = bytes.fromhex(hash_token(SECRET))
LIMITS = {"requests_per_minute": 7}


async def take_over(
    engine: AsyncEngine, *, pepper: bytes = PEPPER, opening: tuple[str, int] | None = None
) -> tuple[ListedKey, bool]:
    key = LiteLLMKey(DIGEST, NewKey("app", team="red"), LIMITS, opening)
    return (await SqlLiteLLMKeys(engine, pepper).take_over([key], author="ada"))[DIGEST]


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
    assert await SqlLiteLLMKeys(engine, PEPPER).find([DIGEST, b"x" * 32]) == {DIGEST: listed}
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
    for _ in range(10):  # until the first secret is no longer remembered
        await secrets.rotate(key_id, overlap_seconds=0, author="bob")
    assert (await take_over(engine))[0].record.id == key_id
    await keys.revoke(key_id, author="bob")
    again, is_made = await take_over(engine)
    assert (again.record.revoked_at_us is not None, is_made) == (True, False)
    assert not await works(engine)
    assert len(await keys.list()) == 1


MONTH, DAY = "month:2026-11-01", "day:2026-11-25"


async def test_what_it_had_spent_is_the_newest_figure_and_never_added_to(engine: AsyncEngine) -> None:
    """A repeated import updates it, also for a rotated key, and separately for each window."""
    openings, log = SqlOpenings(engine), SqlAuditLog(engine)
    key_id = (await take_over(engine, opening=(MONTH, 0)))[0].record.id
    assert await openings.of([MONTH]) == [], "nothing is nothing"
    for pico_usd in (5, 5, 8, 3):
        assert (await take_over(engine, opening=(MONTH, pico_usd)))[0].record.id == key_id
        assert await openings.of([MONTH, DAY]) == [Opening("key", key_id, MONTH, pico_usd)]
    changes = [one for one in await log.page(before=None, limit=50) if one.action == "budget.open"]
    assert len(changes) == 3, "the same figure again is no change"
    assert (changes[0].subject, json.loads(changes[0].detail)) == (
        key_id,
        {"window": MONTH, "before_usd": "0.000000000008", "after_usd": "0.000000000003"},
    )
    await SqlSecrets(engine, PEPPER).rotate(key_id, overlap_seconds=0, author="bob")
    await take_over(engine, opening=(DAY, 1))
    await take_over(engine)
    assert {one.pico_usd for one in await openings.of([MONTH, DAY])} == {3, 1}
    assert await openings.of(["month:2026-12-01"]) == [], "it ends with its window"
    later = SqlOpenings(engine, now_us=lambda: time.time_ns() // 1000 + 63 * DAY_US)
    assert (len(await openings.recent()), await later.recent()) == (2, [])
    await take_over(engine, opening=(MONTH, 0))
    assert await openings.of([MONTH]) == [Opening("key", key_id, MONTH, 0)]


async def test_what_a_team_had_spent_is_kept_apart_from_a_key_of_its_name(engine: AsyncEngine) -> None:
    openings = SqlOpenings(engine)
    given: list[tuple[OpeningScope, int]] = [("team", 4), ("project", 5), ("key", 6), ("team", 7)]
    for scope, pico_usd in given:
        await openings.set(Opening(scope, "red", MONTH, pico_usd), author="ada")
    assert {(one.scope, one.pico_usd) for one in await openings.of([MONTH])} == set(given[1:])
    newest = (await SqlAuditLog(engine).page(before=None, limit=1))[0]
    assert (newest.action, newest.subject) == ("budget.open", "team red")
    await asyncio.gather(*(openings.set(Opening("team", "red", MONTH, 9), author="ada") for _ in range(4)))
    assert Opening("team", "red", MONTH, 9) in await openings.of([MONTH])
    assert (await SqlAuditLog(engine).verify()).is_intact


async def test_a_budget_that_was_half_spent_there_refuses_the_other_half_alone(engine: AsyncEngine) -> None:
    """As counted by workers, whose books do not include it."""
    at_us = microseconds(datetime(2026, 11, 25, 12, tzinfo=UTC))
    key_id = (await take_over(engine, opening=(MONTH, 60)))[0].record.id
    admission = Admission(
        limits={key_id: parse_limits({"budget_usd": "0.0000000001"})},
        openings=by_budget(await SqlOpenings(engine).recent()),
        wait_seconds=0.0,
    )
    spending = Spending(SqlReports(engine), admission, lambda: at_us)
    assert await spending() == {budget_account(key_id, MONTH): 0}
    await admission.treasury.counters.read_books(spending)
    await admission.reserve("first", key_id, 40, now_us=at_us)
    with pytest.raises(BudgetExhausted):
        await admission.reserve("second", key_id, 1, now_us=at_us)
    december = replace(spending, now_us=lambda: at_us + 10 * DAY_US)
    await admission.treasury.counters.read_books(december)
    await admission.reserve("third", key_id, 100, now_us=at_us + 10 * DAY_US)


async def test_several_imports_at_once_make_one_key(engine: AsyncEngine) -> None:
    made = await asyncio.gather(*(take_over(engine) for _ in range(4)))
    assert len({listed.record.id for listed, _ in made}) == 1
    assert sorted(is_made for _, is_made in made) == [False, False, False, True]


async def test_a_part_is_taken_over_whole_or_not_at_all_by_as_many_questions_as_one_key(engine: AsyncEngine) -> None:
    """A transaction for each of 240 keys took 107 s on a busy machine."""
    new, many = NewKey("app"), [hashlib.sha256(b"%d" % number).digest() for number in range(50)]
    keys, asked = SqlLiteLLMKeys(engine, PEPPER), [0]

    def count(*_: object) -> None:
        asked[-1] += 1

    event.listen(engine.sync_engine, "before_cursor_execute", count)
    await keys.take_over([LiteLLMKey(many[0], new, LIMITS, (MONTH, 5))], author="ada")
    asked.append(0)
    with pytest.raises(Exception, match=r"(?i)integer|range|large"):
        await keys.take_over([LiteLLMKey(one, new, LIMITS, (MONTH, 2**70)) for one in many], author="ada")
    assert (await keys.find(many)).keys() == {many[0]}, "what is stopped in the middle leaves nothing of its part"
    asked.append(0)
    taken = await keys.take_over([LiteLLMKey(one, new, LIMITS, (MONTH, 6)) for one in many], author="ada")
    assert [is_made for _, is_made in taken.values()].count(True) == 49
    assert asked[2] <= asked[0]
    assert sum(one.pico_usd for one in await SqlOpenings(engine).of([MONTH])) == 50 * 6
    audit = SqlAuditLog(engine)
    assert (await audit.head(), (await audit.verify()).is_intact) == (2 + 49 + 50, True)


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
