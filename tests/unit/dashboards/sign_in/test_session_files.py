"""Sessions survive the process, and their files are useless without the cookie."""

from pathlib import Path

import pytest

from dashboards.sign_in.session_files import SessionFiles
from dashboards.sign_in.sessions import IDLE_SECONDS, LONGEST_SECONDS, NOTE_SECONDS, Sessions
from tests.hand_clock import HandClock


def test_a_restart_signs_nobody_out(tmp_path: Path) -> None:
    clock = HandClock()
    secret, session = Sessions(clock, SessionFiles(tmp_path)).start(
        "bk-secret", "ann", "owner", frozenset({"a", "b"}), key_id="key_1"
    )
    again = Sessions(clock, SessionFiles(tmp_path)).find(secret)
    assert again == session


def test_a_disk_that_takes_no_changes_keeps_nobody_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nobody could sign in to look why the disk was full; where the folder was not there either, nothing started."""
    (in_the_way := tmp_path / "a file").touch()
    clock, directory = HandClock(), in_the_way / "sessions"
    sessions = Sessions(clock, SessionFiles(directory))
    secret, session = sessions.start("bk-secret", "ann", "owner", frozenset())
    clock.now += NOTE_SECONDS + 1
    assert sessions.find(secret) is session
    assert [one.levelname for one in caplog.records] == ["WARNING", "WARNING"]
    assert f"cannot write to {directory}: Not a directory" in caplog.text


def test_signing_out_is_for_good(tmp_path: Path) -> None:
    sessions = Sessions(HandClock(), SessionFiles(tmp_path))
    secret, _ = sessions.start("bk-secret", "ann", "owner", frozenset())
    sessions.end(secret)
    assert Sessions(HandClock(), SessionFiles(tmp_path)).find(secret) is None


def test_idle_and_old_sessions_stay_over_after_a_restart(tmp_path: Path) -> None:
    clock = HandClock()
    sessions = Sessions(clock, SessionFiles(tmp_path))
    idle, _ = sessions.start("k", "ann", "owner", frozenset())
    busy, _ = sessions.start("k", "ann", "owner", frozenset())
    for _ in range(2):
        clock.now += IDLE_SECONDS - 1
        assert sessions.find(busy) is not None
    restarted = Sessions(clock, SessionFiles(tmp_path))
    assert restarted.find(idle) is None
    assert restarted.find(busy) is not None
    clock.now += LONGEST_SECONDS
    assert Sessions(clock, SessionFiles(tmp_path)).find(busy) is None
    Sessions(clock, SessionFiles(tmp_path)).start("k", "ann", "owner", frozenset())
    assert len(list(tmp_path.iterdir())) == 1, "old files are swept"


def test_the_files_give_nothing_away(tmp_path: Path) -> None:
    files = SessionFiles(tmp_path)
    secret, _ = Sessions(HandClock(), files).start("bk-secret", "ann", "owner", frozenset({"rules.write"}))
    [file] = tmp_path.iterdir()
    assert file.stat().st_mode & 0o077 == 0
    for hidden in (b"bk-secret", b"ann", b"rules.write", secret.encode()):
        assert hidden not in file.read_bytes()
    assert secret not in file.name
    file.write_bytes(file.read_bytes()[:-4] + b"AAAA")
    assert Sessions(HandClock(), files).find(secret) is None
    assert Sessions(HandClock(), files).find("../../etc/passwd") is None
