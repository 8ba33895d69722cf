"""Text to one fixed-length vector: hand features beside the mean of static token vectors. No heads, no labels."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from classifier.features import FEATURE_NAMES, Vector, read
from classifier.words import Vocabulary

LIMIT = 4.0
HAND = len(FEATURE_NAMES)


class Pieces(NamedTuple):
    """Word pieces of one text, those of each different word, with how much each counts."""

    ids: NDArray[np.int32]
    weights: Vector


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
        return self._measure(text)[0]

    def encode(self, text: str) -> Vector:
        """The standardised vector, every dimension within ±4 so that no gadget can run away with a score."""
        return self.encode_with_pieces(text)[0]

    def encode_with_pieces(self, text: str) -> tuple[Vector, Pieces]:
        """The standardised vector, and the word pieces that were read on the way."""
        raw, pieces = self._measure(text)
        return np.minimum(np.maximum((raw - self.centre) / self.spread, -LIMIT), LIMIT), pieces

    def _measure(self, text: str) -> tuple[Vector, Pieces]:
        reading = read(text, self.vocabulary)
        vector = np.zeros(self.size, dtype=np.float32)
        vector[:HAND] = reading.hand
        weight = np.log1p(reading.piece_counts) * self.token_weights[reading.piece_ids]
        if len(weight):
            total = weight @ self.token_vectors[reading.piece_ids].astype(np.float32)
            vector[HAND:] = total * self.token_scale / weight.sum()
        return vector, Pieces(reading.piece_ids, weight)

    def measure_all(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Raw vectors of many texts, one a row."""
        return np.array([self.measure(text) for text in texts], dtype=np.float32).reshape(len(texts), self.size)
