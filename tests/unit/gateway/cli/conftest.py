"""Home folders for commands: an empty one, and one with the demonstration's month, written once for all readers."""

import asyncio
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gateway.cli.demo.month import write_demo_month
from gateway.config.home import Home

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A home folder that does not exist yet."""
    monkeypatch.setenv("BREAKEVEN_HOME", str(tmp_path / "home"))
    return Home(tmp_path / "home")


@pytest.fixture(scope="session")
def written_month(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shared home with the demonstration's month, not to be changed."""
    month = asyncio.run(write_demo_month(Home(tmp_path_factory.mktemp("month")), now=NOW, requests=120))
    assert month is not None
    return month.home.root


@pytest.fixture
def month(written_month: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of that home for one test, which may change it."""
    home = Path(shutil.copytree(written_month, tmp_path_factory.mktemp("home") / "demo"))
    monkeypatch.setenv("BREAKEVEN_HOME", str(home))
    return home
