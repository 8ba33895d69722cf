"""Text to a fixed-length vector: hand-made features and the mean of static token vectors. No heads, no labels."""

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from classifier.features import FEATURE_NAMES, Vector, read
from classifier.words import Vocabulary

LIMIT = 4.0
HAND = len(FEATURE_NAMES)
_FLOATS = np.dtype(np.float32)
_PLACES = np.dtype(np.intp)
_HAND_FEATURES = Struct(f"{HAND}f")
DAMPED = np.log1p(np.arange(20_000, dtype=np.float32))
"""Weight of a word by its number of occurrences; capped text cannot contain more."""


class Encoding(NamedTuple):
    """The vector of one text, and whether there was a letter or digit to read."""

    vector: Vector
    is_readable: bool


@dataclass(frozen=True, slots=True)
class Encoder:
    """`token_vectors * token_scale` are the static vectors; `centre` and `spread` standardise the whole vector."""

    vocabulary: Vocabulary
    token_vectors: NDArray[np.int8]
    token_scale: Vector
    token_weights: Vector
    centre: Vector
    spread: Vector

    @property
    def size(self) -> int:
        return HAND + self.token_vectors.shape[1]

    def measure(self, text: str) -> Vector:
        """The raw vector: hand features, then pooled token dimensions (zero where there is no token)."""
        return self._measure(text).vector

    def encode(self, text: str) -> Encoding:
        """The standardised vector, every dimension within ±4 so that no adversarial text can dominate a score."""
        found = self._measure(text)
        vector = found.vector
        vector -= self.centre
        vector /= self.spread
        np.minimum(np.maximum(vector, -LIMIT, out=vector), LIMIT, out=vector)
        return found

    def _measure(self, text: str) -> Encoding:
        hand, ids, counts, is_readable = read(text, self.vocabulary)
        vector = np.zeros(self.size, _FLOATS)
        _HAND_FEATURES.pack_into(vector.data, 0, *hand)
        if ids:
            size = len(ids)
            places = np.fromiter(ids, _PLACES, size)
            weights = DAMPED.take(np.fromiter(counts, _PLACES, size), None, None, "clip")
            weights *= self.token_weights.take(places)
            pooled = vector[HAND:]
            weights.dot(self.token_vectors.take(places, 0).astype(_FLOATS), pooled)
            pooled *= self.token_scale
            pooled /= np.add.reduce(weights)
        return Encoding(vector, is_readable)

    def measure_all(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Raw vectors of many texts, one a row."""
        return np.array([self.measure(text) for text in texts], dtype=np.float32).reshape(len(texts), self.size)
