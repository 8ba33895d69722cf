"""The classifier of the data path: two latent traits of a prompt, one response curve per model, honest deviations."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from classifier.adaptation import Adaptation
from classifier.encoder import Encoder
from classifier.features import Vector, is_readable, visible_text
from classifier.names import canonical
from classifier.profiles import Curve, CurveBook, resolve
from classifier.protocol import Classification, Conversation, ModelProfile, Quality

# No graded prompt carries tools, images or a schema. These are stated priors: logits of difficulty, and variances.
TOOL_SHIFT = 0.3
SCHEMA_SHIFT = 0.15
IMAGE_VARIANCE = 1.0
LONG_CONTEXT_CHARACTERS = 8_000
LONG_CONTEXT_VARIANCE = 0.25
NOTHING: Mapping[str, float] = {}


@dataclass(frozen=True, slots=True)
class Traits:
    """Linear maps from a standardised vector to the traits, and what is known of their error.

    `weights` is (size, 2): the centred difficulty and the pooled level. `noise` is the variance, in logits, by which
    a source never seen before was found to be off.
    """

    weights: Vector
    covariance: Vector
    noise: float
    knots_score: Vector
    knots_difficulty: Vector
    level_share: float
    length_weights: Vector


class ItemResponseClassifier:
    """Immutable and shared by every task; see protocol.Classifier."""

    def __init__(
        self,
        encoder: Encoder,
        traits: Traits,
        book: CurveBook,
        profiles: Sequence[ModelProfile] = (),
        *,
        adaptation: Adaptation | None = None,
    ) -> None:
        self._encoder = encoder
        self._traits = traits
        self._book = book
        self._adaptation = adaptation
        self._curves = {profile.name: resolve(profile, book) for profile in profiles}
        curves = list(self._curves.values())
        self._names = tuple(self._curves)
        self._canonical = tuple(canonical(name) for name in self._names)
        self._offsets = np.array([curve.offset for curve in curves])
        self._slopes = np.array([curve.slopes for curve in curves]).reshape(len(curves), 2)
        self._variances = np.array([curve.deviation**2 for curve in curves])
        self._log_tokens = [curve.log_output_tokens for curve in curves]
        self.version = _version(book.sha256, self._curves)

    @property
    def origins(self) -> Mapping[str, str]:
        """For every bound model, where its curve comes from."""
        return {name: curve.origin for name, curve in self._curves.items()}

    @property
    def adapted_to(self) -> tuple[str, ...]:
        """Models whose quality was fitted on labels of this deployment, by canonical name."""
        return self._adaptation.models if self._adaptation else ()

    @property
    def heads(self) -> tuple[str, ...]:
        """Models of the artefact, by canonical name."""
        return tuple(self._book.heads)

    @property
    def book(self) -> CurveBook:
        """What turns profiles into curves."""
        return self._book

    def traits_of(self, text: str) -> tuple[float, float]:
        """The two latent traits of a text, as the data path computes them."""
        theta = self._encoder.encode(text) @ self._traits.weights
        return float(theta[0]), float(theta[1])

    def bind(self, profiles: Sequence[ModelProfile]) -> "ItemResponseClassifier":
        """The same artefact for another catalogue. Raises UnknownHead for a profile that names a head it has not."""
        return ItemResponseClassifier(self._encoder, self._traits, self._book, profiles, adaptation=self._adaptation)

    def classify(self, conversation: Conversation) -> Classification:
        """Never raises on any text; see protocol.Classifier."""
        text = visible_text(conversation)
        if not is_readable(text):
            return self._unknown()
        vector, pieces = self._encoder.encode_with_pieces(text)
        traits = self._traits
        theta = vector @ traits.weights
        shift = TOOL_SHIFT * (conversation.tool_count > 0) + SCHEMA_SHIFT * conversation.wants_json
        score = (1.0 - traits.level_share) * float(theta[0]) + traits.level_share * float(theta[1])
        variance = float(vector @ traits.covariance @ vector) + _context_variance(conversation)
        difficulty = self._difficulty(score)
        noise, in_domain = traits.noise, NOTHING
        if self._adaptation:
            noise = self._adaptation.noise
            difficulty, in_domain = self._adaptation.apply(score, vector, pieces)
        if shift:
            difficulty = _sigmoid(_logit(difficulty) + shift)
        logits = self._offsets - self._slopes @ theta - shift
        deviation = math.sqrt(variance + noise) * difficulty * (1.0 - difficulty)
        return Classification(
            difficulty=difficulty,
            uncertainty=min(2.0 * deviation, 1.0),
            quality=self._qualities(logits, variance + noise, in_domain),
            output_tokens=self._lengths(float(np.clip(vector @ traits.length_weights, -1.5, 1.5))),
        )

    def _difficulty(self, score: float) -> float:
        return float(np.interp(score, self._traits.knots_score, self._traits.knots_difficulty))

    def _qualities(
        self, logits: Vector, variance: float, in_domain: Mapping[str, float] | None = None
    ) -> dict[str, Quality]:
        means = 1.0 / (1.0 + np.exp(-np.clip(logits, -30.0, 30.0)))
        for number, name in enumerate(self._canonical if in_domain else ()):
            means[number] = (in_domain or NOTHING).get(name, means[number])
        deviations = np.minimum(np.sqrt(self._variances + variance) * means * (1.0 - means), 0.5)
        return {
            name: Quality(mean, deviation)
            for name, mean, deviation in zip(self._names, means.tolist(), deviations.tolist(), strict=True)
        }

    def _lengths(self, longer: float) -> dict[str, float]:
        return {name: math.exp(log + longer) for name, log in zip(self._names, self._log_tokens, strict=True)}

    def _unknown(self) -> Classification:
        """Nothing to read: the reference prompt's figures with the largest uncertainty."""
        return Classification(
            difficulty=self._difficulty(0.0),
            uncertainty=1.0,
            quality={name: Quality(quality.mean, 0.5) for name, quality in self._qualities(self._offsets, 0.0).items()},
            output_tokens=self._lengths(0.0),
        )


def _context_variance(conversation: Conversation) -> float:
    context = len(conversation.system) + sum(map(len, conversation.earlier))
    return IMAGE_VARIANCE * (conversation.image_count > 0) + LONG_CONTEXT_VARIANCE * min(
        context / LONG_CONTEXT_CHARACTERS, 4.0
    )


def _sigmoid(logit: float) -> float:
    return 1.0 / (1.0 + math.exp(-logit))


def _logit(share: float) -> float:
    share = min(max(share, 1e-4), 1.0 - 1e-4)
    return math.log(share / (1.0 - share))


def _version(artefact: str, curves: Mapping[str, Curve]) -> str:
    """Sixteen hexadecimal digits over the artefact and the bound catalogue."""
    bound = repr([(name, curve) for name, curve in sorted(curves.items())])
    return hashlib.sha256(f"{artefact}\n{bound}".encode()).hexdigest()[:16]
