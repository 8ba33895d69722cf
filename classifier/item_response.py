"""The data path's classifier: two latent traits of a prompt, one response curve per model, realistic deviations."""

import hashlib
import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence

from classifier.adaptation import Adaptation
from classifier.features import visible_text
from classifier.logits import logit, sigmoid
from classifier.names import canonical
from classifier.predictions import Lengths, Places, Qualities
from classifier.profiles import Curve, CurveBook, resolve
from classifier.projection import Projector, Traits
from classifier.protocol import Classification, Conversation, ModelProfile

# No graded prompt contains tools, images or a schema. These are assumed priors: logits of difficulty, and variances.
TOOL_SHIFT = 0.3
SCHEMA_SHIFT = 0.15
IMAGE_VARIANCE = 1.0
LONG_CONTEXT_CHARACTERS = 8_000
LONG_CONTEXT_VARIANCE = 0.25
NOTHING: Mapping[str, tuple[float, float]] = {}


class ItemResponseClassifier:
    """Immutable and shared by every task; see protocol.Classifier."""

    def __init__(
        self,
        projector: Projector,
        traits: Traits,
        book: CurveBook,
        profiles: Sequence[ModelProfile] = (),
        *,
        adaptation: Adaptation | None = None,
    ) -> None:
        self._projector = projector
        self._traits = traits
        self._book = book
        self._adaptation = adaptation
        self._curves = {profile.name: resolve(profile, book) for profile in profiles}
        quality = {name: self._line(name, curve) for name, curve in self._curves.items()}
        lengths = {name: curve.log_output_tokens for name, curve in self._curves.items()}
        self._lines, self._usual_lengths = list(dict.fromkeys(quality.values())), list(dict.fromkeys(lengths.values()))
        self._places = Places(
            {name: self._lines.index(line) for name, line in quality.items()},
            {name: self._usual_lengths.index(usual) for name, usual in lengths.items()},
        )
        self._scores: list[float] = traits.knots_score.tolist()
        self._difficulties: list[float] = traits.knots_difficulty.tolist()
        self.version = _version(book.sha256, self._curves)

    @property
    def origins(self) -> Mapping[str, str]:
        """Where each bound model's curve comes from."""
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
        """Turns profiles into curves."""
        return self._book

    def traits_of(self, text: str) -> tuple[float, float]:
        """The two latent traits of a text, as the data path computes them."""
        found = self._projector.project(text)
        return found.first, found.second

    def bind(self, profiles: Sequence[ModelProfile]) -> "ItemResponseClassifier":
        """The same artefact for another catalogue."""
        return ItemResponseClassifier(self._projector, self._traits, self._book, profiles, adaptation=self._adaptation)

    def _line(self, name: str, curve: Curve) -> tuple[str, float, float, float, float]:
        """All that a model's quality depends on; its canonical name only if it was fitted on this deployment's
        labels."""
        known = canonical(name)
        return known if known in self.adapted_to else "", curve.offset, *curve.slopes, curve.deviation**2

    def classify(self, conversation: Conversation) -> Classification:
        """Never raises for any text; see protocol.Classifier."""
        found = self._projector.project(visible_text(conversation))
        if not found.is_readable:
            return self._unknown()
        first, second, longer, traits = found.first, found.second, found.longer, self._traits
        shift = TOOL_SHIFT * (conversation.tool_count > 0) + SCHEMA_SHIFT * conversation.wants_json
        score = (1.0 - traits.level_share) * first + traits.level_share * second
        variance = found.variance + _context_variance(conversation)
        difficulty = self._difficulty(score)
        noise, in_domain = traits.noise, NOTHING
        if self._adaptation:
            noise = self._adaptation.noises[0]
            difficulty, in_domain = self._adaptation.apply(score, found.vector)
        if shift:
            difficulty = sigmoid(logit(difficulty) + shift)
        deviation = math.sqrt(variance + noise) * difficulty * (1.0 - difficulty)
        return Classification(
            difficulty=difficulty,
            uncertainty=2.0 * deviation if deviation < 0.5 else 1.0,
            quality=self._qualities(first, second, shift, variance, in_domain),
            output_tokens=self._lengths(-1.5 if longer < -1.5 else 1.5 if longer > 1.5 else longer),
        )

    def _difficulty(self, score: float) -> float:
        """Linear between knots, constant beyond them; the same bits as np.interp at a quarter of its cost."""
        scores, difficulties = self._scores, self._difficulties
        after = bisect_right(scores, score)
        if after == 0 or after == len(scores):
            return difficulties[0 if after == 0 else -1]
        left, right = scores[after - 1], scores[after]
        low, high = difficulties[after - 1], difficulties[after]
        return (high - low) / (right - left) * (score - left) + low

    def _qualities(
        self,
        first: float,
        second: float,
        shift: float,
        variance: float,
        in_domain: Mapping[str, tuple[float, float]] = NOTHING,
    ) -> Qualities:
        """Uses plain floats, which for a few dozen curves are faster than arrays. `in_domain` has means and noises by
        canonical name."""
        exp = math.exp
        means: list[float] = []
        for known, offset, by_first, by_second, _ in self._lines:
            if known and in_domain:
                means.append(in_domain[known][0])
                continue
            linear = offset - (by_first * first + by_second * second) - shift
            # Comparisons instead of calls to `min` and `max`: this runs once per curve.
            means.append(1.0 / (1.0 + exp(-30.0 if linear > 30.0 else 30.0 if linear < -30.0 else -linear)))

        def deviations() -> list[float]:
            unseen = self._traits.noise
            noises = [in_domain[known][1] if known and in_domain else unseen for known, *_ in self._lines]
            found = [
                math.sqrt(line[-1] + (variance + noise)) * mean * (1.0 - mean)
                for line, mean, noise in zip(self._lines, means, noises, strict=True)
            ]
            return [one if one < 0.5 else 0.5 for one in found]

        return Qualities(self._places, means, deviations)

    def _lengths(self, longer: float) -> Lengths:
        exp = math.exp
        return Lengths(self._places, [exp(usual + longer) for usual in self._usual_lengths])

    def _unknown(self) -> Classification:
        """Nothing to read: the reference prompt's figures with maximum uncertainty."""
        usual = self._qualities(0.0, 0.0, 0.0, 0.0)
        return Classification(
            difficulty=self._difficulty(0.0),
            uncertainty=1.0,
            quality=Qualities(self._places, usual.means, lambda: [0.5] * len(usual.means)),
            output_tokens=self._lengths(0.0),
        )


def _context_variance(conversation: Conversation) -> float:
    earlier = conversation.earlier
    context = (len(conversation.system) + (sum(map(len, earlier)) if earlier else 0)) / LONG_CONTEXT_CHARACTERS
    of_images = IMAGE_VARIANCE if conversation.image_count else 0.0
    return of_images + LONG_CONTEXT_VARIANCE * (context if context < 4.0 else 4.0)


def _version(artefact: str, curves: Mapping[str, Curve]) -> str:
    """Sixteen hexadecimal digits over the artefact and the bound catalogue."""
    bound = repr([(name, curve) for name, curve in sorted(curves.items())])
    return hashlib.sha256(f"{artefact}\n{bound}".encode()).hexdigest()[:16]
