"""What `breakeven doctor` says of the home, the journal and the files of kept answers."""

import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from gateway.cli.doctor import Finding
from gateway.config.home import Home, create_home
from gateway.kept_answers.record_store import Change
from gateway.storage.turns.turn_file import TurnFile
from tests.homes import new_home
from tests.unit.gateway.cli.doctor.examined import found


def test_a_home_below_a_file_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    checks = found(Home(tmp_path / "file" / "home"))
    assert not checks["state"].is_ok
    assert "set BREAKEVEN_HOME" in str(checks["state"].fix)


def test_nobody_is_told_to_leave_a_used_home_because_its_disk_is_full(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It said to set BREAKEVEN_HOME to another directory, which has neither keys nor books."""
    new_home(home.root)

    def full(path: Path) -> SimpleNamespace:
        return SimpleNamespace(free=0)

    monkeypatch.setattr(shutil, "disk_usage", full)
    state = found(home)["state"]
    assert "only 0.0 GB free" in state.detail
    assert str(state.fix).startswith("make room there")


def test_a_journal_of_somebody_else_is_named(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    create_home(home)
    home.journal_directory.mkdir(mode=0o500)

    def access(path: Path, mode: int) -> bool:
        return path != home.journal_directory  # to root everything is open

    monkeypatch.setattr(os, "access", access)
    assert found(home)["journal"].detail.endswith("journal is not writable")


KEPT = "kept responses"
REDIS = "redis: redis://localhost:1/0"


def test_kept_responses_that_are_damaged_are_a_finding(home: Home) -> None:
    create_home(home)
    assert found(home)[KEPT] == Finding(KEPT, True, "none kept yet")
    home.turns_file.write_bytes(b"not a database" * 500)
    home.turns_file.chmod(0o600)
    finding = found(home)[KEPT]
    assert not finding.is_ok
    assert finding.detail.startswith(f"{home.turns_file} is damaged or of another version")
    assert finding.fix is not None


def test_kept_conversations_are_looked_at_too(home: Home) -> None:
    name = "kept conversations"
    create_home(home)
    assert found(home)[name] == Finding(name, True, "none kept yet")
    file = TurnFile(home.conversations_file, max_bytes=1 << 20, longest_seconds=60)
    assert file.swap(Change("head", None, b"1", beside={"a": b"a"}), 60)
    assert found(home)[name].detail.startswith(f"2 records in {home.conversations_file}, 0 of 537 MB")
    file.close()
    home.conversations_file.write_bytes(b"not a database" * 500)
    finding = found(home)[name]
    assert (finding.is_ok, "conversations may be lost at the next start" in (finding.fix or "")) == (False, True)


@pytest.mark.parametrize(
    ("setting", "is_ok", "detail"),
    [
        (f"{REDIS}\nkept_answers: {{response_hours: 24}}", True, "in Redis"),
        (REDIS, False, "none: with Redis, only once `kept_answers.response_hours` is set"),
        (f"{REDIS}\nkept_answers: {{response_hours: 0}}", True, "in no file, as `kept_answers` in breakeven.yaml says"),
        ("kept_answers: {disk_megabytes: 0}", True, "in no file, as `kept_answers` in breakeven.yaml says"),
        ("kept_answers: {response_hours: 0}", True, "in no file, as `kept_answers` in breakeven.yaml says"),
    ],
)
def test_kept_responses_are_looked_for_where_they_are_kept(home: Home, setting: str, is_ok: bool, detail: str) -> None:
    new_home(home.root)
    with home.config_file.open("a") as config:
        config.write(f"\n{setting}\n")
    home.turns_file.write_bytes(b"left by an earlier configuration")
    assert found(home)[KEPT] == Finding(KEPT, is_ok, detail)
