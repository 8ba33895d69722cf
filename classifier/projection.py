"""Maps a text to the figures that curves and knots need: the encoder's vector through linear maps."""

from dataclasses import dataclass
from typing import Protocol

import msgspec
from numpy.typing import ArrayLike

from classifier.encoder import Encoder
from classifier.features import Vector


@dataclass(frozen=True, slots=True)
class Traits:
    """Linear maps from a standardised vector to the traits, and their known error.

    `weights` is (size, 2): the centred difficulty and the pooled level. `noise` is the variance, in logits, of the
    error measured on unseen sources.
    """

    weights: Vector
    covariance: Vector
    noise: float
    knots_score: Vector
    knots_difficulty: Vector
    level_share: float
    length_weights: Vector


class Projection(msgspec.Struct, frozen=True):
    """The two traits of a text, their variance, how much longer than usual its answer is (in logs), the standardised
    vector, and whether there was a letter or digit to read. A struct, because every request creates one."""

    first: float
    second: float
    variance: float
    longer: float
    vector: ArrayLike
    is_readable: bool


class Projector(Protocol):
    """Never raises for any str; the cap bounds the cost. Immutable; safe to share between tasks and threads."""

    def project(self, text: str) -> Projection: ...


@dataclass(frozen=True, slots=True)
class PlainProjector:
    """In Python and numpy: the definition, for every machine and text."""

    encoder: Encoder
    traits: Traits

    def project(self, text: str) -> Projection:
        vector, is_readable = self.encoder.encode(text)
        traits = self.traits
        # `dot` gives the same bits as `@` with less overhead, which dominates at these sizes.
        first, second = vector.dot(traits.weights).tolist()
        variance = float(vector.dot(traits.covariance).dot(vector))
        return Projection(first, second, variance, float(vector.dot(traits.length_weights)), vector, is_readable)
