"""A home beside a database whose keys it cannot know: it was restored without its secrets, or is another machine's."""

from pathlib import Path

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.config.home import Home
from gateway.errors import StateError
from gateway.storage.pepper import require_pepper
from gateway.storage.sql_keys import SqlKeyStore
from gateway.stores import NewKey

pytestmark = pytest.mark.integration


async def test_a_home_without_the_keys_pepper_is_refused_and_makes_none(
    engine: AsyncEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It made another, served, and told every caller that its key is not known."""
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
