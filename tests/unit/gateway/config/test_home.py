"""The secrets of a home: whole or not there, and the same for everybody who asks."""

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from sqlalchemy import make_url

from gateway.config.home import SECRET_BYTES, Home, create_home, find_home
from gateway.errors import StateError

PROCESSES = 8


def test_processes_that_ask_at_once_get_one_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BREAKEVEN_PEPPER", raising=False)
    together = Barrier(PROCESSES)

    def ask(_: int) -> bytes:
        together.wait()
        return Home(tmp_path).pepper()

    with ThreadPoolExecutor(PROCESSES) as pool:
        found = set(pool.map(ask, range(PROCESSES)))
    assert len(found) == 1
    assert len(found.pop()) == SECRET_BYTES
    [file] = tmp_path.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_secret_is_on_the_disk_under_its_name_before_it_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system's calls, in their order: no disk of ours can lose power here."""
    done: list[str] = []
    fsync, link = os.fsync, os.link

    def noting_sync(file: int) -> None:
        done.append("names" if stat.S_ISDIR(os.fstat(file).st_mode) else "content")
        fsync(file)

    def noting_link(old: Path, new: Path) -> None:
        done.append("link")
        link(old, new)

    monkeypatch.setattr(os, "fsync", noting_sync)
    monkeypatch.setattr(os, "link", noting_link)
    Home(tmp_path).bodies_key()
    assert done == ["content", "link", "names"]


@pytest.mark.parametrize("left", ["", "ab", "no hexadecimal text at all"])
def test_a_secret_that_was_cut_is_refused_and_never_used(left: str, tmp_path: Path) -> None:
    (tmp_path / "bodies-key").write_text(left)
    with pytest.raises(StateError, match="restore it from a backup"):
        Home(tmp_path).bodies_key()


def test_a_replica_keeps_its_name_and_shares_it_with_no_other(tmp_path: Path) -> None:
    one, other = (Home(tmp_path / name) for name in ("one", "other"))
    for home in (one, other):
        create_home(home)
    assert one.replica_id() == Home(one.root).replica_id() != other.replica_id()


def test_an_unusable_home_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StateError, match="set BREAKEVEN_HOME to a writable directory"):
        create_home(Home(tmp_path / "file" / "home"))


def test_a_home_is_closed_to_others(tmp_path: Path) -> None:
    create_home(Home(tmp_path / "home"))
    assert stat.S_IMODE((tmp_path / "home").stat().st_mode) == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a folder away")
def test_a_volume_mounted_for_our_group_is_taken_as_it_is(tmp_path: Path) -> None:
    """As Kubernetes does with fsGroup: its root is root's, and nobody else may change its mode."""
    volume = tmp_path / "volume"
    volume.mkdir()
    os.chown(volume, 12345, 0)
    volume.chmod(0o2775)
    create_home(Home(volume))
    assert stat.S_IMODE(volume.stat().st_mode) == 0o2775


def test_a_home_of_somebody_else_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 12345)

    def access(path: Path, mode: int) -> bool:
        return False  # to root everything is open

    monkeypatch.setattr(os, "access", access)
    with pytest.raises(StateError, match="Permission denied; give it to the user that runs this or"):
        create_home(Home(Path("/")))


def test_a_home_whose_path_is_no_text_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BREAKEVEN_HOME", "/srv/h\udcfft")
    with pytest.raises(StateError, match="not read as UTF-8 here; leave out PYTHONUTF8=0"):
        find_home()


@pytest.mark.parametrize("name", ["what?", "100%41", "hüt 家", "a#b"])
def test_the_database_is_in_the_home_whatever_that_is_called(tmp_path: Path, name: str) -> None:
    home = Home(tmp_path / name)
    assert make_url(home.database_url).database == str(home.root / "breakeven.db")
