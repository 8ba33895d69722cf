"""The names of workers that share counters: each has its own, and has it again after a restart."""

from pathlib import Path

import pytest

from gateway.composition.sharing import open_sharing
from gateway.config.home import Home, create_home
from gateway.storage.redis.counters import RedisCounters

URL = "redis://127.0.0.1:1/0"


def name(home: Home, worker: str) -> str:
    counters = open_sharing(URL, home=home, journal=home.journal_directory / worker, workers=2).counters
    assert isinstance(counters, RedisCounters)
    return counters.worker


def test_machines_of_one_image_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They have the same host name and the same path of the home: their journals must not be confused."""
    monkeypatch.setattr("socket.gethostname", lambda: "image")
    names: set[str] = set()
    for machine in ("one", "two"):
        home = Home(tmp_path / "home")
        create_home(home)
        found = [name(home, worker) for worker in ("worker-0000", "worker-0001", "worker-0000")]
        assert found[0] == found[2]
        names |= set(found)
        home.root.rename(tmp_path / machine)
    assert len(names) == 4
