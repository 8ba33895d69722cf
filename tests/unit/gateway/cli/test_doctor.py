"""`breakeven doctor`: one line a check, and what to do where something is wrong."""

import socket
from pathlib import Path

import pytest

from gateway.cli.doctor import Finding, examine
from gateway.config.first_files import write_first_files
from gateway.config.home import Home, create_home


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("BREAKEVEN_HOME", str(tmp_path / "home"))
    return Home(tmp_path / "home")


def found(home: Home) -> dict[str, Finding]:
    """Against a port that nobody listens on: it is bound for as long as this takes."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return {one.name: one for one in examine(home, f"http://127.0.0.1:{taken.getsockname()[1]}")}


def test_before_the_first_start_only_the_gateway_is_missing(home: Home) -> None:
    checks = found(home)
    assert [name for name, one in checks.items() if not one.is_ok and one.fix] == ["gateway"]
    assert "nothing answers at http://127.0.0.1:" in checks["gateway"].detail
    assert "`breakeven serve`" in checks["state"].detail


def test_a_home_has_a_database_that_answers(home: Home) -> None:
    create_home(home)
    write_first_files(home)
    checks = found(home)
    assert checks["database"] == Finding("database", True, "reachable, no request yet", checks["database"].fix)
    assert checks["journal"].detail.startswith("synced by ")
    assert checks["journal"].fix is None
    assert checks["redis"].is_ok
    assert "not configured" in checks["redis"].detail


def test_what_does_not_answer_is_named_with_its_fix(home: Home) -> None:
    create_home(home)
    write_first_files(home)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with home.config_file.open("a") as file:
            file.write(f"database: postgresql+asyncpg://nobody@127.0.0.1:{taken.getsockname()[1]}/none\n")
            file.write(f"redis: redis://127.0.0.1:{taken.getsockname()[1]}/0\n")
        checks = found(home)
    assert "cannot use the database" in checks["database"].detail
    assert "does not answer" in checks["redis"].detail
    assert not checks["database"].is_ok
    assert not checks["redis"].is_ok


def test_a_home_below_a_file_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    checks = found(Home(tmp_path / "file" / "home"))
    assert not checks["state"].is_ok
    assert "set BREAKEVEN_HOME" in str(checks["state"].fix)
