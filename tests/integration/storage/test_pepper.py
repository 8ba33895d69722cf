"""A home whose secrets do not fit the database's keys: restored without its secrets, or from another machine."""

from pathlib import Path

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.config.home import Home
from gateway.errors import StateError
from gateway.storage.pepper import require_pepper, require_same_pepper
from gateway.storage.sql.audit import append_audit
from gateway.storage.sql.keys import SqlKeyStore
from gateway.storage.sql.secrets import SqlSecrets
from gateway.stores import NewKey

pytestmark = pytest.mark.integration


async def test_a_home_without_the_keys_pepper_is_refused_and_makes_none(
    engine: AsyncEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It used to create a new one, serve, and reject every caller's key."""
    monkeypatch.delenv("BREAKEVEN_PEPPER", raising=False)
    first, other = Home(tmp_path / "first"), Home(tmp_path / "other")
    for home in (first, other):
        home.root.mkdir()
        await require_pepper(engine, home)
    assert not first.has_pepper, "there is no key yet, so any will do"
    await SqlKeyStore(engine, first.pepper()).create(NewKey("app", "app"), author="test")
    await require_pepper(engine, first)
    with pytest.raises(StateError, match=r"other/pepper is not there, .* restore it from a backup, or set BREAKEVEN_P"):
        await require_pepper(engine, other)
    assert not other.has_pepper
    monkeypatch.setenv("BREAKEVEN_PEPPER", first.pepper().hex())
    await require_pepper(engine, other)
    assert other.pepper() == first.pepper()


async def test_a_home_with_another_pepper_than_the_keys_is_refused_until_a_key_is_made_with_it(
    engine: AsyncEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two homes that start together on an empty database, or a mistyped BREAKEVEN_PEPPER: every key was rejected
    there."""
    monkeypatch.delenv("BREAKEVEN_PEPPER", raising=False)
    first, other = Home(tmp_path / "first"), Home(tmp_path / "other")
    stores: list[SqlKeyStore] = []
    for home in (first, other):
        home.root.mkdir()
        stores.append(SqlKeyStore(engine, home.pepper()))
        await require_same_pepper(engine, home)
    key, _ = await stores[0].create(NewKey("app", "app"), author="test")
    await require_same_pepper(engine, first)
    with pytest.raises(StateError, match=r"other/pepper is not what the API keys .* a database of its own"):
        await require_same_pepper(engine, other)
    monkeypatch.setenv("BREAKEVEN_PEPPER", "5a" * 32)
    with pytest.raises(StateError, match=r"^BREAKEVEN_PEPPER is not what"):
        await require_same_pepper(engine, first)
    monkeypatch.delenv("BREAKEVEN_PEPPER")

    assert await SqlSecrets(engine, other.pepper()).rotate(key.record.id, overlap_seconds=0, author="test")
    await require_same_pepper(engine, other)
    await require_same_pepper(engine, first)


async def test_keys_from_before_the_log_named_peppers_may_be_this_homes(engine: AsyncEngine, tmp_path: Path) -> None:
    """A single key created elsewhere with a wrong pepper must not keep the right home from starting."""
    async with engine.begin() as connection:
        await append_audit(
            connection, at_us=1, actor="before", action="key.create", subject="key-0", detail='{"name": "app"}'
        )
    await SqlKeyStore(engine, b"of another home").create(NewKey("app", "app"), author="test")
    await require_same_pepper(engine, Home(tmp_path))
