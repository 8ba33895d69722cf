"""Versions of the classifier: one file selects them, one call rolls back, and errors say what to do."""

import errno
import os
import resource
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from classifier.load import SHIPPED as SHIPPED_FOLDER
from classifier.load import load_artefact
from classifier.online.correction import Correction
from gateway.errors import StateError
from gateway.learning.classifier_versions import SHIPPED, Active, ClassifierVersions
from gateway.process.file_watch import FileWatch


def test_without_any_choice_the_shipped_artefact_is_in_force(tmp_path: Path) -> None:
    versions = ClassifierVersions(tmp_path)
    assert versions.history() == [Active()]
    assert versions.open().version == load_artefact().version


def choose(versions: ClassifierVersions, chosen: Active) -> None:
    assert versions.replace([*versions.history(), chosen])


def test_promotion_and_rollback_are_seen_by_who_watches_the_file(tmp_path: Path) -> None:
    versions = ClassifierVersions(tmp_path / "classifier")
    watch = FileWatch(versions.active_file)
    name = versions.add_correction(Correction({"a": (0.5, 0.0)}), {"judged": 60})
    assert versions.corrections() == [name]
    choose(versions, Active(SHIPPED, name, "tested", 1))
    assert not versions.replace(versions.history()), "who watches the file need not load it again"
    assert watch.has_changed()
    assert versions.open().version.endswith(f"+{name}")
    assert versions.correction(name) == Correction({"a": (0.5, 0.0)})
    assert versions.replace([Active()])
    assert watch.has_changed()
    assert versions.open().version == load_artefact().version


def test_an_adapted_artefact_can_be_stored_and_chosen(tmp_path: Path) -> None:
    versions = ClassifierVersions(tmp_path / "classifier")
    name = versions.add_artefact(SHIPPED_FOLDER)
    assert versions.artefacts() == [SHIPPED, name]
    choose(versions, Active(name, None, "tested elsewhere", 1))
    assert versions.open().version == load_artefact().version
    with pytest.raises(StateError, match=r"manifest\.json cannot be read"):
        versions.add_artefact(tmp_path)


def test_damage_is_told(tmp_path: Path) -> None:
    versions = ClassifierVersions(tmp_path)
    name = versions.add_correction(Correction({"a": (0.5, 0.0)}), {})
    choose(versions, Active(SHIPPED, name, "test", 1))
    (tmp_path / "corrections" / f"{name}.json").unlink()
    with pytest.raises(StateError, match=f"no usable correction {name}"):
        versions.open()
    versions.active_file.write_text("{")
    with pytest.raises(StateError, match="restore it, or delete it"):
        versions.history()
    versions.active_file.write_text("[]")
    assert versions.history() == [Active()]


def test_what_cannot_be_opened_is_not_put_in_force(tmp_path: Path) -> None:
    versions = ClassifierVersions(tmp_path / "classifier")
    name = versions.add_artefact(SHIPPED_FOLDER)
    weights = tmp_path / "classifier" / "artefacts" / name / "weights.bin"
    weights.write_bytes(weights.read_bytes()[:1000])
    for chosen, message in ((Active(name), "damaged or mixed"), (Active(SHIPPED, "gone"), "no usable correction gone")):
        with pytest.raises(StateError, match=message):
            choose(versions, chosen)
    assert versions.history() == [Active()]


def test_what_is_in_force_is_not_written_over_and_what_is_damaged_is_replaced(tmp_path: Path) -> None:
    versions = ClassifierVersions(tmp_path)
    name = versions.add_artefact(SHIPPED_FOLDER)
    weights = tmp_path / "artefacts" / name / "weights.bin"
    before = weights.stat()
    assert versions.add_artefact(SHIPPED_FOLDER) == name
    assert (weights.stat().st_ino, weights.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)

    weights.write_bytes(b"")
    assert versions.add_artefact(SHIPPED_FOLDER) == name
    choose(versions, Active(name))


def test_an_artefact_that_was_not_copied_whole_is_none(tmp_path: Path) -> None:
    versions = ClassifierVersions(tmp_path)
    left = tmp_path / "artefacts" / f"{'a' * 16}.part"  # remains of a killed process
    left.mkdir(parents=True)
    assert versions.artefacts() == [SHIPPED]
    versions.add_artefact(SHIPPED_FOLDER)
    assert not left.exists()


@contextmanager
def full_disk() -> Generator[None]:
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limit[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)


def test_a_correction_that_cannot_be_written_leaves_the_one_in_force(tmp_path: Path) -> None:
    versions = ClassifierVersions(tmp_path)
    name = versions.add_correction(Correction({"a": (0.5, 0.0)}), {})
    with full_disk(), pytest.raises(OSError, match=os.strerror(errno.EFBIG)):
        versions.add_correction(Correction({"a": (0.5, 0.0)}), {})
    assert versions.correction(name) == Correction({"a": (0.5, 0.0)})


def test_an_artefact_that_does_not_fit_the_disk_is_told_in_a_sentence(tmp_path: Path) -> None:
    versions = ClassifierVersions(tmp_path)
    with full_disk(), pytest.raises(StateError, match=rf"[0-9a-f]{{16}}: {os.strerror(errno.EFBIG)}; make room there"):
        versions.add_artefact(SHIPPED_FOLDER)
    assert not list((tmp_path / "artefacts").iterdir())
