"""Projects a text in one native call, at a fraction of the cost of the Python definition."""

import ctypes
import platform
import struct
import weakref
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from classifier.artefact import Artefact
from classifier.encoder import DAMPED, HAND
from classifier.features import RELATIONS
from classifier.lexicon import GROUP_NAMES, build_index
from classifier.native.alphabet import Alphabet
from classifier.projection import PlainProjector, Projection
from classifier.words import UNKNOWN_PIECE, cap, clean
from native.library import load_library, processor_flags

SOURCE: Final = Path(__file__).parent / "reader.cpp"
# No contraction into fused operations: hand-made features must equal Python's to the last bit.
FLAGS: Final = ("-O3", "-std=c++17", "-fPIC", "-ffp-contract=off")
_INNER = "##"
_FIGURES: Final = struct.Struct("4di")
# letters.h's `Status`; any other value is left to the Python definition.
_READ, _UNKNOWN, _UNCLEAN = range(3)
# In the order of reader.cpp's `Artefact`.
_TENSORS: Final = (
    *("token_vectors", "token_weights", "token_scale", "centre", "spread"),
    *("trait_weights", "covariance", "length_weights"),
)


class _CArtefact(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("words", "lengths", "ids", "tags")),
        *((name, ctypes.c_int64) for name in ("whole", "inner")),
        *((name, ctypes.c_void_p) for name in (*_TENSORS, "damped", "relations", "letters")),
        *(
            (name, ctypes.c_int32)
            for name in ("relation_count", "groups", "hand", "dimensions", "unknown", "damped_size")
        ),
    )


def _projection_of(size: int) -> type[ctypes.Structure]:
    """reader.cpp's `Projection` with a vector of that size."""
    figures = [(name, ctypes.c_double) for name in ("first", "second", "variance", "longer")]
    fields = [*figures, ("is_readable", ctypes.c_int32), ("vector", ctypes.c_float * size)]  # _FIGURES, and the vector
    return type("_CProjection", (ctypes.Structure,), {"_fields_": fields})


@cache
def load_reader() -> ctypes.CDLL | None:
    """The compiled reader, or None without a C++ compiler."""
    wide = ("-mavx2",) if platform.machine() == "x86_64" and "avx2" in processor_flags() else ()
    library = load_library(SOURCE, (*FLAGS, *wide), keeps_lock=True)
    if library is not None:
        library.breakeven_reader_new.argtypes = [ctypes.c_void_p]
        library.breakeven_reader_new.restype = ctypes.c_void_p
        library.breakeven_reader_free.argtypes = [ctypes.c_void_p]
        library.breakeven_reader_free.restype = None
        # Without argtypes, whose checks cost as much as reading a sentence: numbers are passed as C's int, bytes as a
        # pointer.
        library.breakeven_reader_project.restype = ctypes.c_int
        library.breakeven_reader_project_unicode.restype = ctypes.c_int
    return library


class NativeProjector:
    """Equals `plain` up to rounding, and exactly in the hand-made features.

    Raises ValueError for an artefact of a shape that the native reader does not support.
    """

    def __init__(self, library: ctypes.CDLL, artefact: Artefact, plain: PlainProjector) -> None:
        self._plain = plain
        self._alphabet = Alphabet()
        self._kept = {**_arrays(artefact), "letters": self._alphabet.rows}  # kept alive: C++ reads them in place
        dimensions = artefact.tensors["token_vectors"].shape[1]
        whole = len(self._kept["tags"])
        described = _CArtefact(
            **{name: array.ctypes.data for name, array in self._kept.items()},
            whole=whole,
            inner=len(self._kept["lengths"]) - whole,
            relation_count=len(RELATIONS),
            groups=len(GROUP_NAMES),
            hand=HAND,
            dimensions=dimensions,
            unknown=artefact.pieces.index(UNKNOWN_PIECE),
            damped_size=len(DAMPED),
        )
        reader: int | None = library.breakeven_reader_new(ctypes.byref(described))
        if not reader:
            raise ValueError("the artefact has another shape than the native reader")
        weakref.finalize(self, library.breakeven_reader_free, reader)
        self._reader = ctypes.c_void_p(reader)
        self._read_ascii: Any = library.breakeven_reader_project
        self._read_unicode: Any = library.breakeven_reader_project_unicode
        self._new_projection: Any = _projection_of(HAND + dimensions)

    def project(self, text: str) -> Projection:
        capped, characters, found = cap(text), len(text.strip()), self._new_projection()
        if capped.isascii():
            capped = capped.encode()
            status = self._read_ascii(self._reader, capped, len(capped), characters, ctypes.byref(found))
        else:
            status = self._read(capped, characters, found)
        if status != _READ:
            return self._plain.project(text)
        first, second, variance, longer, is_readable = _FIGURES.unpack_from(found)
        return Projection(first, second, variance, longer, found.vector, is_readable != 0)

    def _read(self, text: str, characters: int, found: ctypes.Structure) -> int:
        """Reads until settled: learns unknown characters, and has Python clean texts that need it. Returns the final
        status."""
        is_clean = False
        while True:
            written = text.encode("utf-8", "surrogatepass")
            status = self._read_unicode(self._reader, written, len(written), characters, is_clean, ctypes.byref(found))
            if status == _UNKNOWN:
                self._alphabet.learn(text)
            elif status == _UNCLEAN:
                text, is_clean = clean(text), True
            else:
                return status


def _arrays(artefact: Artefact) -> dict[str, NDArray[Any]]:
    """The arrays that `Artefact` in reader.cpp points to, by its names, except the letters."""
    tags = build_index()
    numbers = {piece: number for number, piece in enumerate(artefact.pieces) if piece}
    inner = {piece[len(_INNER) :]: number for piece, number in numbers.items() if piece.startswith(_INNER)}
    inner.pop("", None)
    others = [word for word in tags if word not in numbers]
    words = list(map(str.encode, (*numbers, *others, *inner)))
    return {
        "words": np.frombuffer(b"".join(words), np.uint8),
        "lengths": np.fromiter(map(len, words), np.int32, len(words)),
        "ids": np.array([*numbers.values(), *(-1 for _ in others), *inner.values()], np.int32),
        "tags": _tags([*numbers, *others], tags),
        "relations": np.array(RELATIONS, np.int32),
        "damped": DAMPED,
        **_tensors(artefact),
    }


def _tags(words: Sequence[str], tags: Mapping[str, tuple[int, ...]]) -> NDArray[np.int16]:
    """A row for each word: most have no tag. Raises ValueError for one with more tags than a table slot holds."""
    rows = np.full((len(words), 2), -1, np.int16)
    for row, word in enumerate(words):
        if word in tags:
            rows[row, : len(tags[word])] = tags[word]
    return rows


def _tensors(artefact: Artefact) -> dict[str, NDArray[Any]]:
    """Raises ValueError for wrong shapes, with which C++ would read out of bounds."""
    pieces, dimensions = len(artefact.pieces), artefact.tensors["token_vectors"].shape[1]
    size = HAND + dimensions
    shapes = ((pieces, dimensions), (pieces,), (dimensions,), (size,), (size,), (size, 2), (size, size), (size,))
    found: dict[str, NDArray[Any]] = {}
    for name, shape in zip(_TENSORS, shapes, strict=True):
        tensor = artefact.tensors[name]
        if tensor.shape != shape:
            raise ValueError(f"{name} has shape {tensor.shape} instead of {shape}")
        found[name] = np.ascontiguousarray(tensor, np.int8 if name == "token_vectors" else np.float32)
    return found
