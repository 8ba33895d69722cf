"""Parses a GGUF container: metadata values and the location of each tensor. Every length is checked against the file,
and the header is bounded, since each of its bytes may take a hundred of memory.

The format is little-endian: magic, version, counts, typed key-values, tensor descriptions, then aligned tensor bytes
(https://github.com/ggml-org/ggml/blob/master/docs/gguf.md).
"""

import math
import re
import struct
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from local_engine.errors import ModelUnavailable
from local_engine.loading.open_file import FileRows, OpenFile

MAGIC: Final = b"GGUF"
VERSIONS: Final = (2, 3)
DEFAULT_ALIGNMENT: Final = 32
STRING: Final = 8
ARRAY: Final = 9
SCALARS: Final = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
MAX_DIMENSIONS: Final = 4
# Many times what is known: 2,000 tensors, 60 fields, and Gemma 3's vocabulary of 1.3 million values in 20 MB.
MOST_ENTRIES: Final = 1 << 16
MOST_VALUES: Final = 1 << 22
MOST_HEADER_BYTES: Final = 1 << 27
SHARD: Final = re.compile(r"(.+)-\d{5}-of-(\d{5})\.gguf")


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """`raw` are its bytes, with a row for each of the innermost dimension; `shape` is row-major, outermost first."""

    name: str
    shape: tuple[int, ...]
    kind: GGMLQuantizationType
    raw: np.ndarray | FileRows


@dataclass(frozen=True, slots=True)
class GgufFile:
    """Metadata by key, tensors by name."""

    metadata: dict[str, Any]
    tensors: dict[str, GgufTensor]


def read_gguf(path: Path) -> GgufFile:
    """Opens and parses a file; raises ModelUnavailable, with the position, if it is damaged or truncated."""
    try:
        return _parse(_Cursor(OpenFile(path)), path.name)
    except OSError as error:
        raise ModelUnavailable(f"Cannot read {path} ({error}).") from error


def _parse(cursor: "_Cursor", name: str) -> GgufFile:
    if cursor.take(4) != MAGIC:
        raise ModelUnavailable(f"{name} is not a GGUF file.")
    version = cursor.scalar("I")
    if version not in VERSIONS:
        raise ModelUnavailable(f"{name} is GGUF version {version}; versions 2 and 3 are read.")
    tensor_count, pair_count = cursor.scalar("Q"), cursor.scalar("Q")
    if max(tensor_count, pair_count) > MOST_ENTRIES:
        raise cursor.damaged(f"it has {tensor_count} tensors and {pair_count} fields, above {MOST_ENTRIES}")
    metadata: dict[str, Any] = {}
    for _ in range(pair_count):
        key = cursor.string()
        metadata[key] = cursor.value(cursor.scalar("I"))
    described = [_describe(cursor) for _ in range(tensor_count)]
    if len(metadata) < pair_count or len({name for name, *_ in described}) < tensor_count:
        raise cursor.damaged("two of its fields or tensors have one name")
    alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT) or DEFAULT_ALIGNMENT
    if not isinstance(alignment, int) or alignment < 0:
        raise cursor.damaged("its general.alignment is not a number of bytes")
    start = -(-cursor.at // alignment) * alignment
    placed = {tensor[0]: _place(cursor, start, *tensor) for tensor in described}
    for one, other in pairwise(sorted(placed, key=lambda name: placed[name].start)):
        if placed[one].end > placed[other].start:
            raise cursor.damaged(f"tensors {one!r} and {other!r} overlap")
    kinds = ((name, shape, GGMLQuantizationType(kind)) for name, shape, kind, _ in described)
    return GgufFile(metadata, {name: GgufTensor(name, shape, kind, placed[name]) for name, shape, kind in kinds})


def read_gguf_shards(path: Path) -> GgufFile:
    """Parse a file and, if it is one of several, the others beside it; metadata is the first one's.

    Raises ModelUnavailable if one is damaged or missing.
    """
    file = read_gguf(path)
    parts = file.metadata.get("split.count", 1)
    if not isinstance(parts, int) or parts <= 1:
        return file
    named = SHARD.fullmatch(path.name)
    if named is None or int(named[2]) != parts:
        raise ModelUnavailable(
            f"{path.name} is one of {parts} parts of a model: keep their names (NAME-00001-of-{parts:05}.gguf)."
        )
    files = [read_gguf(path.with_name(f"{named[1]}-{part:05}-of-{named[2]}.gguf")) for part in range(1, parts + 1)]
    tensors = {name: tensor for file in files for name, tensor in file.tensors.items()}
    wanted = files[0].metadata.get("split.tensors.count", sum(len(file.tensors) for file in files))
    if len(tensors) != wanted:
        raise ModelUnavailable(f"The {parts} parts of {path.name} hold {len(tensors)} of {wanted} tensors.")
    return GgufFile(files[0].metadata, tensors)


def _describe(cursor: "_Cursor") -> tuple[str, tuple[int, ...], int, int]:
    name = cursor.string()
    dimensions = cursor.scalar("I")
    if not 0 < dimensions <= MAX_DIMENSIONS:
        raise cursor.damaged(f"tensor {name!r} has {dimensions} dimensions")
    shape = tuple(reversed([int(cursor.scalar("Q")) for _ in range(dimensions)]))
    return name, shape, cursor.scalar("I"), cursor.scalar("Q")


def _place(cursor: "_Cursor", start: int, name: str, shape: tuple[int, ...], kind: int, offset: int) -> FileRows:
    try:
        quantisation = GGMLQuantizationType(kind)
    except ValueError as error:
        raise cursor.damaged(f"tensor {name!r} is of the unknown type {kind}") from error
    block, block_bytes = GGML_QUANT_SIZES[quantisation]
    if math.prod(shape) < block or shape[-1] % block:
        raise cursor.damaged(f"tensor {name!r} is not of whole blocks in every row")
    size = math.prod(shape) // block * block_bytes
    if start + offset + size > cursor.file.size:
        raise cursor.damaged(f"tensor {name!r} lies beyond its end")
    rows = math.prod(shape[:-1])
    return FileRows(cursor.file, start + offset, rows, size // rows)


class _Cursor:
    """Reads a header forward."""

    def __init__(self, file: OpenFile) -> None:
        self.file = file
        self.at = 0
        self._header = file.from_its_start()
        self._values = 0

    def damaged(self, what: str) -> ModelUnavailable:
        return ModelUnavailable(f"{self.file.name} is damaged: {what}.")

    def take(self, count: int) -> bytes:
        if count <= self.file.size - self.at:
            self.at += count
            if self.at > MOST_HEADER_BYTES:
                raise self.damaged(f"its header has more than {MOST_HEADER_BYTES} bytes")
            if len(taken := self._header.read(count)) == count:
                return taken
        raise self.damaged(f"it ends at byte {self.file.size}, inside its header")

    def scalar(self, code: str) -> Any:
        return struct.unpack("<" + code, self.take(struct.calcsize("<" + code)))[0]

    def string(self) -> str:
        return self.take(self.scalar("Q")).decode("utf-8", errors="replace")

    def value(self, kind: int) -> Any:
        if kind == STRING:
            return self.string()
        if kind == ARRAY:
            return self._array()
        if kind not in SCALARS:
            raise self.damaged(f"a metadata value is of the unknown type {kind}")
        return self.scalar(SCALARS[kind])

    def _array(self) -> list[Any]:
        kind, count = self.scalar("I"), self.scalar("Q")
        self._values += count
        if self._values > MOST_VALUES:
            raise self.damaged(f"its arrays hold more than {MOST_VALUES} values")
        if kind == STRING:
            return [self.string() for _ in range(count)]
        if kind not in SCALARS:
            raise self.damaged(f"an array holds values of the unsupported type {kind}")
        code = SCALARS[kind]
        raw = self.take(count * struct.calcsize("<" + code))
        return list(struct.unpack(f"<{count}{code}", raw))
