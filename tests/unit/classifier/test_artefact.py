"""Artefact files: round trip, equal bytes for equal content, and reported damage."""

import resource
from pathlib import Path

import numpy as np
import pytest

from classifier.artefact import MANIFEST, WEIGHTS, ArtefactError, read_artefact, write_artefact
from classifier.load import SHIPPED, load_artefact

TENSORS = {"b": np.arange(6, dtype=np.float32).reshape(2, 3), "a": np.array([1, -2], dtype=np.int8)}


def test_round_trip_and_equal_bytes(tmp_path: Path) -> None:
    first = write_artefact(tmp_path / "one", TENSORS, ["[UNK]", "é"], {"model": {"x": 1}})
    second = write_artefact(tmp_path / "two", dict(reversed(TENSORS.items())), ["[UNK]", "é"], {"model": {"x": 1}})
    assert first == second
    found = read_artefact(tmp_path / "one")
    assert found.sha256 == first
    assert list(found.pieces) == ["[UNK]", "é"]
    assert found.facts["model"] == {"x": 1}
    for name, tensor in TENSORS.items():
        np.testing.assert_array_equal(found.tensors[name], tensor)


def test_an_artefact_that_does_not_fit_the_disk_leaves_the_one_before(tmp_path: Path) -> None:
    """The older one was overwritten in part, and so lost."""
    write_artefact(tmp_path, TENSORS, ["x"], {})
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    least, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 12, most))
    try:
        with pytest.raises(OSError, match="too large"):
            write_artefact(tmp_path, TENSORS, ["x" * 10_000], {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (least, most))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_damage_is_told(tmp_path: Path) -> None:
    write_artefact(tmp_path, TENSORS, ["a"], {})
    (tmp_path / WEIGHTS).write_bytes(b"x" + (tmp_path / WEIGHTS).read_bytes()[1:])
    with pytest.raises(ArtefactError, match="damaged"):
        read_artefact(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{}", "not a classifier manifest"),
        ("x", "not a classifier manifest"),
        ('{"format": 99, "tensors": []}', "format 99"),
    ],
)
def test_a_foreign_manifest_is_refused(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / MANIFEST).write_text(content)
    with pytest.raises(ArtefactError, match=message):
        read_artefact(tmp_path)


@pytest.mark.parametrize(
    ("keep", "shape"),
    [("nothing of the model", None), ("all but a tensor", None), ("everything", (40, 2))],
    ids=["no model", "no tensor", "other shape"],
)
def test_an_artefact_of_another_version_is_refused_when_it_is_loaded(
    tmp_path: Path, keep: str, shape: tuple[int, int] | None
) -> None:
    shipped = read_artefact(SHIPPED)
    tensors, facts = dict(shipped.tensors), {"model": dict(shipped.facts["model"])}
    if keep == "nothing of the model":
        facts = {}
    if keep == "all but a tensor":
        del tensors["covariance"]
    if shape:
        tensors["trait_weights"] = np.zeros(shape, dtype=np.float32)
    write_artefact(tmp_path, tensors, shipped.pieces, facts)
    with pytest.raises(ArtefactError, match=r"not an artefact of this version .* train it again"):
        load_artefact(tmp_path)


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(ArtefactError, match="cannot be read"):
        read_artefact(tmp_path / "nowhere")


def test_the_shipped_artefact_is_small_and_says_where_it_comes_from() -> None:
    assert sum(path.stat().st_size for path in SHIPPED.iterdir()) <= 10_000_000
    provenance = read_artefact(SHIPPED).facts["provenance"]
    assert provenance["code_version"] >= 1
    for file in provenance["training_files"]:
        assert len(file["sha256"]) == 64
        assert file["licences"]
        assert "alpaca" not in file["file"]
