"""A trained classifier as files: a JSON manifest, raw tensors and a word list. No pickle; equal inputs give equal
bytes."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

FORMAT = 1
MANIFEST = "manifest.json"
WEIGHTS = "weights.bin"
VOCABULARY = "vocabulary.txt"
_DTYPES = {"float32": np.float32, "int8": np.int8}


class ArtefactError(Exception):
    """The artefact cannot be used; the message names the file and what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Artefact:
    """Tensors by name, the vocabulary's pieces in order, and everything else as JSON facts.

    `sha256` is the hash of the manifest, which itself holds the hashes of the two other files.
    """

    tensors: Mapping[str, NDArray[Any]]
    pieces: Sequence[str]
    facts: Mapping[str, Any]
    sha256: str


def write_artefact(
    folder: Path, tensors: Mapping[str, NDArray[Any]], pieces: Sequence[str], facts: Mapping[str, Any]
) -> str:
    """Write the three files and return the artefact's hash. An older artefact stays if they do not all fit the disk."""
    folder.mkdir(parents=True, exist_ok=True)
    table: list[dict[str, Any]] = []
    blob = bytearray()
    for name in sorted(tensors):
        tensor = np.ascontiguousarray(tensors[name])
        blob += bytes(-len(blob) % 16)
        table.append({"name": name, "dtype": str(tensor.dtype), "shape": list(tensor.shape), "offset": len(blob)})
        blob += tensor.tobytes()
    words = "\n".join(pieces).encode("utf-8")
    manifest = json.dumps(
        {
            "format": FORMAT,
            "weights_sha256": hashlib.sha256(blob).hexdigest(),
            "vocabulary_sha256": hashlib.sha256(words).hexdigest(),
            "tensors": table,
            **facts,
        },
        indent=1,
        sort_keys=True,
        ensure_ascii=False,
    ).encode("utf-8")
    _write_together(folder, {WEIGHTS: blob, VOCABULARY: words, MANIFEST: manifest})
    return hashlib.sha256(manifest).hexdigest()


def read_artefact(folder: Path) -> Artefact:
    """Raises ArtefactError for a missing, incompatible or damaged artefact."""
    manifest = _read(folder / MANIFEST)
    try:
        facts: dict[str, Any] = json.loads(manifest)
        table: list[dict[str, Any]] = facts["tensors"]
        found = facts["format"]
    except (ValueError, KeyError, TypeError) as error:
        raise ArtefactError(f"{folder / MANIFEST} is not a classifier manifest: {error}") from error
    if found != FORMAT:
        raise ArtefactError(f"{folder / MANIFEST} has format {found}; this version reads {FORMAT}: train it again")
    weights = _checked(folder / WEIGHTS, facts["weights_sha256"])
    words = _checked(folder / VOCABULARY, facts["vocabulary_sha256"])
    tensors = {
        row["name"]: np.frombuffer(
            weights, dtype=_DTYPES[row["dtype"]], count=int(np.prod(row["shape"])), offset=row["offset"]
        ).reshape(row["shape"])
        for row in table
    }
    return Artefact(tensors, words.decode("utf-8").split("\n"), facts, hashlib.sha256(manifest).hexdigest())


def _write_together(folder: Path, files: Mapping[str, bytes | bytearray]) -> None:
    parts = {name: folder / f"{name}.part" for name in files}
    try:
        for name, content in files.items():
            parts[name].write_bytes(content)
        for name, part in parts.items():
            part.replace(folder / name)
    finally:
        for part in parts.values():
            part.unlink(missing_ok=True)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ArtefactError(f"{path} cannot be read: {error.strerror}") from error


def _checked(path: Path, sha256: str) -> bytes:
    content = _read(path)
    if hashlib.sha256(content).hexdigest() != sha256:
        raise ArtefactError(
            f"{path} does not match its manifest: the artefact is damaged or mixed; copy it again, or train it again"
        )
    return content
