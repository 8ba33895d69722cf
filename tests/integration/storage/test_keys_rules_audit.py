"""Keys, rules and their audit log on both databases."""

import asyncio
import json
from dataclasses import replace

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.access.keys import KeyRing, hash_key
from gateway.errors import Unauthenticated
from gateway.instants import DAY_US, LAST_US
from gateway.money import format_usd
from gateway.rulebook.versions import Activation, RulesStore, StoredRules
from gateway.storage.sql.audit import SqlAuditLog
from gateway.storage.sql.budgets import SqlBudgets
from gateway.storage.sql.keys import SqlKeyStore
from gateway.storage.sql.ledger import SqlLedger
from gateway.storage.sql.rules import SqlRulesStore
from gateway.storage.tables.administration import api_keys, audit_log
from gateway.stores import LAST_DAYS, AuditLog, Budget, BudgetStore, KeyChange, KeyStore, NewKey
from tests.unit.gateway.ledger.builders import make_entry, make_intent

pytestmark = pytest.mark.integration
PEPPER = b"p" * 32


async def test_a_key_is_shown_once_and_kept_as_a_hash(engine: AsyncEngine) -> None:
    store: KeyStore = SqlKeyStore(engine, PEPPER, now_us=lambda: 1_000)
    new = NewKey("app one", "app", "search", "ranking", ("a", "b"), ("small-local",), expires_at_us=5_000)
    listed, secret = await store.create(new, author="ada")
    assert secret.startswith("bk-")
    assert len(secret) >= 46
    assert listed.created_at_us == 1_000
    assert await store.list() == [listed]
    assert await store.find_by_hash(hash_key(PEPPER, secret)) == listed.record
    assert await store.find_by_hash(hash_key(b"other", secret)) is None
    ring = KeyRing(PEPPER)
    ring.replace(await store.records())
    assert ring.authenticate(f"Bearer {secret}", 4_999) == listed.record
    with pytest.raises(Unauthenticated, match="expired"):
        ring.authenticate(secret, 5_000)
    async with engine.connect() as connection:
        for table in (api_keys, audit_log):
            for row in await connection.execute(table.select()):
                assert secret not in repr(row)
                assert secret[3:] not in repr(row)


async def test_an_end_that_is_no_date_as_earlier_versions_took_them_is_the_last_one(engine: AsyncEngine) -> None:
    """Every list of keys used to fail if there was one."""
    store = SqlKeyStore(engine, PEPPER)
    await store.create(NewKey("x", expires_at_us=1 << 62), author="ada")
    [listed] = await store.list()
    assert listed.record.expires_at_us == LAST_US


async def test_revocation_is_seen_by_every_store_and_booked_once(engine: AsyncEngine) -> None:
    store = SqlKeyStore(engine, PEPPER, now_us=lambda: 7)
    listed, _ = await store.create(NewKey("x"), author="ada")
    assert await store.revoke(listed.record.id, author="bob")
    assert await store.revoke(listed.record.id, author="eve")
    assert not await store.revoke("key_none", author="bob")
    [record] = (await SqlKeyStore(engine, PEPPER).records()).values()
    assert record.revoked_at_us == 7
    actions = [(one.actor, one.action) for one in await SqlAuditLog(engine).page(before=None, limit=9)]
    assert actions == [("bob", "key.revoke"), ("ada", "key.create")]


async def test_a_change_touches_what_it_names_and_the_audit_log_has_both(engine: AsyncEngine) -> None:
    store: KeyStore = SqlKeyStore(engine, PEPPER, now_us=lambda: 7)
    new = NewKey("x", team="red", tags=("a",), allowed_models=("small",), expires_at_us=5)
    listed, _ = await store.create(new, author="ada", limits={"budget_usd": "5"})
    change: KeyChange = {"limits": {"requests_per_minute": 9}, "tags": ("b", "c"), "expires_at_us": None, "team": "red"}
    assert await store.change(listed.record.id, change, author="bob")
    assert await store.limits() == {listed.record.id: {"requests_per_minute": 9}}
    [record] = (await store.records()).values()
    assert record == replace(listed.record, tags=("b", "c"), expires_at_us=None)
    newest = (await SqlAuditLog(engine).page(before=None, limit=1))[0]
    assert (newest.actor, newest.action, newest.subject) == ("bob", "key.change", listed.record.id)
    assert json.loads(newest.detail) == {
        "before": {"limits": {"budget_usd": "5"}, "tags": ["a"], "expires_at_us": 5},
        "after": {"limits": {"requests_per_minute": 9}, "tags": ["b", "c"], "expires_at_us": None},
    }


async def test_models_are_widened_and_narrowed(engine: AsyncEngine) -> None:
    store: KeyStore = SqlKeyStore(engine, PEPPER)
    listed, _ = await store.create(NewKey("x"), author="ada")
    for given, allowed in ((("b", "a"), frozenset({"a", "b"})), ((), frozenset[str]()), (None, None)):
        assert await store.change(listed.record.id, {"allowed_models": given}, author="bob")
        assert [one.allowed_models for one in (await store.records()).values()] == [allowed]


async def test_changing_nothing_records_nothing_and_an_unknown_key_is_said(engine: AsyncEngine) -> None:
    store: KeyStore = SqlKeyStore(engine, PEPPER)
    listed, _ = await store.create(NewKey("x", tags=("a",)), author="ada", limits={"budget_usd": "5"})
    assert await store.change(
        listed.record.id, {"tags": ("a",), "limits": {"budget_usd": "5"}, "allowed_models": None}, author="bob"
    )
    assert not await store.change("key_none", {"limits": {}}, author="bob")
    assert [one.actor for one in await SqlAuditLog(engine).page(before=None, limit=9)] == ["ada"]


async def test_the_last_day_of_a_key_is_that_of_its_newest_request(engine: AsyncEngine) -> None:
    today = 20_781
    store: KeyStore = SqlKeyStore(engine, PEPPER, now_us=lambda: today * DAY_US + 5)
    ages = {"busy": (40, 3, 3), "asleep": (LAST_DAYS - 1,), "gone": (LAST_DAYS,)}
    entries = [
        make_entry(number, intent=make_intent(number, accepted_at_us=(today - age) * DAY_US + 7, key_id=key))
        for number, (key, age) in enumerate((key, age) for key, each in ages.items() for age in each)
    ]
    assert await SqlLedger(engine).insert(entries) == 5
    assert await store.last_days() == {"busy": today - 3, "asleep": today - LAST_DAYS + 1}


async def test_one_budget_that_several_set_at_once_is_that_of_the_last(engine: AsyncEngine) -> None:
    store: BudgetStore = SqlBudgets(engine)
    for first in (0, 10):
        await asyncio.gather(*(store.set(Budget("team", "a", first + more, "ada", 1)) for more in range(5)))
    [left] = await store.budgets()
    changes = [json.loads(one.detail) for one in await SqlAuditLog(engine).page(before=None, limit=10)]
    assert changes[0]["after_usd"] == format_usd(left.month_pico_usd)
    assert [one["before_usd"] for one in changes] == [*(one["after_usd"] for one in changes[1:]), None]
    changed = store.set(Budget("team", "a", 7, "ada", 1))
    await asyncio.gather(store.remove("team", "a", author="bo"), changed, store.remove("team", "a", author="cy"))
    assert (await SqlAuditLog(engine).verify()).is_intact


async def test_budgets_are_one_for_each_scope_and_name(engine: AsyncEngine) -> None:
    store: BudgetStore = SqlBudgets(engine, now_us=lambda: 9)
    for budget in (
        Budget("project", "a", 3, "ada", 1),
        Budget("team", "a", 2, "ada", 1),
        Budget("all", "", 1, "bo", 2),
    ):
        await store.set(budget)
    await store.set(Budget("team", "a", 5, "bo", 3, stops=True))
    newest = (await SqlAuditLog(engine).page(before=None, limit=1))[0]
    assert '"stopped_before": false, "stops": true' in newest.detail
    assert [one.scope for one in await store.budgets() if one.stops] == ["team"]
    assert [(one.scope, one.month_pico_usd) for one in await store.budgets()] == [
        ("all", 1),
        ("team", 5),
        ("project", 3),
    ]
    assert await store.remove("team", "a", author="cy")
    assert not await store.remove("team", "a", author="cy")
    newest = (await SqlAuditLog(engine).page(before=None, limit=9))[0]
    assert (newest.actor, newest.action, newest.subject) == ("cy", "budget.remove", "team a")
    assert (await SqlAuditLog(engine).verify()).is_intact


def rules(version: str, at_us: int = 1) -> StoredRules:
    return StoredRules(version, f"version: 1 # {version}", "ada", "because", at_us)


async def test_versions_do_not_change_and_activation_is_compare_and_set(engine: AsyncEngine) -> None:
    store: RulesStore = SqlRulesStore(engine)
    assert await store.active() is None
    await store.put(rules("v1", 1))
    await store.put(StoredRules("v1", "another text", "eve", "", 9))
    await store.put(rules("v2", 2))
    assert await store.get("v1") == rules("v1", 1)
    assert await store.get("v9") is None
    assert [one.version for one in await store.versions()] == ["v2", "v1"]
    assert await store.activate(Activation("v1", None, "ada", "", 3), diff="+all")
    assert not await store.activate(Activation("v2", None, "bob", "", 4), diff="")
    assert await store.activate(Activation("v2", "v1", "bob", "try", 5), diff="-a\n+b")
    assert await store.active() == "v2"
    assert [(one.version, one.previous) for one in await store.activations()] == [("v2", "v1"), ("v1", None)]
    newest = (await SqlAuditLog(engine).page(before=None, limit=1))[0]
    assert (newest.action, newest.actor, newest.detail, newest.reason) == ("rules.activate", "bob", "-a\n+b", "try")


async def test_of_many_activations_at_once_one_wins(engine: AsyncEngine) -> None:
    store = SqlRulesStore(engine)
    for number in range(6):
        await store.put(rules(f"v{number}"))
    await store.activate(Activation("v0", None, "ada", "", 1), diff="")
    won = await asyncio.gather(*(store.activate(Activation(f"v{n}", "v0", "ada", "", 2), diff="") for n in range(1, 6)))
    assert sum(won) == 1
    assert len(await store.activations()) == 2
    assert (await SqlAuditLog(engine).verify()).is_intact


async def test_any_edit_of_the_audit_log_is_found(engine: AsyncEngine) -> None:
    log = SqlAuditLog(engine)
    protocol: AuditLog = log
    for number in range(5):
        await log.append(at_us=number, actor="ada", action="test", subject=f"s{number}", reason="r", detail="ü" * 9)
    verified = await protocol.verify()
    assert (verified.is_intact, verified.records) == (True, 5)
    assert [one.sequence for one in await log.page(before=4, limit=2)] == [3, 2]
    for column in ("actor", "action", "subject", "reason", "detail"):
        async with engine.begin() as connection:
            before = (await connection.execute(audit_log.select().where(audit_log.c.sequence == 3))).mappings().one()
            await connection.execute(audit_log.update().where(audit_log.c.sequence == 3).values({column: "x"}))
        assert (await log.verify()).first_broken == 3, column
        async with engine.begin() as connection:
            await connection.execute(
                audit_log.update().where(audit_log.c.sequence == 3).values({column: before[column]})
            )
    assert (await log.verify()).is_intact
    async with engine.begin() as connection:
        await connection.execute(audit_log.delete().where(audit_log.c.sequence == 2))
    assert (await log.verify()).first_broken == 3
