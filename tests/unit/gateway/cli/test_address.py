"""Commands find the gateway where it was last started."""

import os
from pathlib import Path

import pytest

from gateway.cli.address import DEFAULT_URL, local_url, remember_address, running_url
from gateway.config.home import Home, create_home


def test_before_a_first_start_it_is_where_that_will_be(tmp_path: Path) -> None:
    assert running_url(Home(tmp_path / "none")) == DEFAULT_URL


@pytest.mark.parametrize(
    ("host", "seen"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("0.0.0.0", "127.0.0.1"),
        ("10.0.0.7", "10.0.0.7"),
        ("::", "127.0.0.1"),
        ("::1", "[::1]"),
    ],
)
def test_the_last_start_counts(tmp_path: Path, host: str, seen: str) -> None:
    home = Home(tmp_path)
    create_home(home)
    remember_address(home, "127.0.0.1", 9)
    remember_address(home, host, 18080)
    assert running_url(home) == local_url(host, 18080) == f"http://{seen}:18080"


def test_what_cannot_be_noted_keeps_nobody_from_serving(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    home = Home(tmp_path)
    remember_address(home, "127.0.0.1", 9)
    home.address_file.with_name(f"{home.address_file.name}.{os.getpid()}.part").mkdir()  # as good as a full disk
    remember_address(home, "127.0.0.1", 10)
    assert running_url(home) == local_url("127.0.0.1", 9)
    assert "other commands look for this gateway at http://127.0.0.1:9" in caplog.text
