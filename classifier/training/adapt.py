"""In-domain adaptation: a few hundred graded prompts of a deployment fit the frozen artefact to its traffic."""

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from classifier.adaptation import Adaptation, Neighbours, domain_tensors
from classifier.artefact import Artefact, read_artefact, write_artefact
from classifier.encoder import HAND, LIMIT
from classifier.features import FEATURE_NAMES, is_readable
from classifier.labels import known_scores, read_labels
from classifier.load import SHIPPED, build_encoder, build_traits
from classifier.names import canonical
from classifier.prompt_lines import PromptFileError
from classifier.training.corpus import CorpusError, Matrix, mean_known, quality_gap

MIN_LABELS = 30
MIN_LABELS_OF_A_MODEL = 10
MAX_LANDMARKS = 2000
JITTER = 1e-6
LEAST_SPREAD = 1e-3
PRIOR_SLOPE = 0.15
# Logits squared: with the minimum of labels per model, as uncertain as a frozen curve on an unseen source.
NOISE_OF_ONE_LABEL = 4.0


# Features that a domain's labels can settle soonest: how much there is to read and to count.
PLAIN = ("log_characters", "log_stem_words", "log_sentences", "log_numbers", "log_option_words")
PLAIN_SHARE = 0.35


@dataclass(frozen=True, slots=True)
class Penalties:
    """Ridge penalties of the correction; chosen by leave-one-source-out learning curves (docs/decisions)."""

    score: float = 100.0
    plain: float = 200.0
    hand: float = 8000.0
    pooled: float = 20_000.0
    near: float = 6.0

    def diagonal(self, size: int) -> Matrix:
        hand = [self.plain if name in PLAIN else self.hand for name in FEATURE_NAMES]
        return np.r_[self.score, hand, np.full(size - HAND - 1, self.pooled)]


@dataclass(frozen=True, slots=True)
class View:
    """The frozen artefact's view of prompts: combined trait score and standardised vector of each."""

    scores: Matrix
    vectors: Matrix

    def pick(self, rows: NDArray[np.intp]) -> "View":
        return View(self.scores[rows], self.vectors[rows])


def fit_adaptation(
    view: View,
    outcomes: Matrix,
    models: Sequence[str],
    *,
    max_landmarks: int = MAX_LANDMARKS,
) -> Adaptation:
    """`outcomes` are prompts by models, NaN if unknown; above `max_landmarks` only some labels become landmarks."""
    penalties = Penalties()
    centre, spread = _frame(view)
    rows = np.clip((np.c_[view.scores, view.vectors] - centre) / spread, -LIMIT, LIMIT)
    near_scales = _near_scales(rows.shape[1] - 1)
    places = rows[:, 1:] * near_scales
    landmarks = places[:: math.ceil(len(rows) / max_landmarks)]
    root = np.linalg.cholesky(_nearness(landmarks, landmarks) + JITTER * np.eye(len(landmarks)))
    # In these features every penalty is 1: ridge on the second block equals kernel ridge restricted to the landmarks.
    units = penalties.diagonal(rows.shape[1]) ** -0.5
    features = np.c_[rows * units, np.linalg.solve(root, _nearness(places, landmarks).T).T * penalties.near**-0.5]
    targets = np.c_[_hardness(outcomes), outcomes]
    expected = np.array([_expected(rows[:, 0], target, is_failure=n == 0) for n, target in enumerate(targets.T)])
    found, levels = _solve(features, targets - rows[:, :1] * expected)
    weights = np.vstack([units[:, None] * found[: len(units)], levels])
    weights[0] += expected
    return Adaptation(
        tuple(models),
        centre.astype(np.float32),
        spread.astype(np.float32),
        weights.astype(np.float32),
        Neighbours(
            near_scales.astype(np.float32),
            landmarks.astype(np.float32),
            (landmarks**2).sum(axis=1).astype(np.float32),
            (np.linalg.solve(root.T, found[len(units) :]) * penalties.near**-0.5).astype(np.float32),
        ),
        tuple((NOISE_OF_ONE_LABEL / np.sqrt(np.isfinite(targets).sum(axis=0))).tolist()),
    )


def adapt(labels: Path, out: Path, *, base: Path | None = None, progress: Callable[[str], None] = print) -> str:
    """Writes the base artefact (by default the shipped one) adapted to the labels. Raises CorpusError."""
    artefact = read_artefact(base or SHIPPED)
    prompts, models, outcomes = _read_outcomes(labels, progress)
    with threadpool_limits(limits=1):  # the same bits on every run
        view = frozen_view(artefact, prompts)
        adaptation = fit_adaptation(view, outcomes, models)
    tensors = {**artefact.tensors, **domain_tensors(adaptation)}
    facts: dict[str, Any] = {
        "provenance": artefact.facts["provenance"],
        "model": artefact.facts["model"],
        "adaptation": {
            "models": models,
            "noises": adaptation.noises,
            "labels": len(prompts),
            "labels_sha256": hashlib.sha256(labels.read_bytes()).hexdigest(),
            "base_sha256": artefact.sha256,
        },
    }
    return write_artefact(out, tensors, artefact.pieces, facts)


def _read_outcomes(labels: Path, progress: Callable[[str], None]) -> tuple[list[str], list[str], Matrix]:
    """Readable prompts with scores, the models by canonical name, and the scores, NaN if unknown."""
    prompts: list[str] = []
    graded: list[dict[str, float]] = []
    spellings: dict[str, str] = {}
    try:
        for line, row in read_labels(labels):
            spellings |= {name: canonical(name) for name in row["scores"]}
            scores = known_scores(row["scores"], f"{labels}:{line}")
            if scores and is_readable(row["prompt"]):
                prompts.append(row["prompt"])
                graded.append(scores)
    except PromptFileError as error:
        raise CorpusError(str(error)) from error
    for model, count in sorted(Counter(spellings.values()).items()):
        if count > 1:
            same = " and ".join(sorted(name for name, known_as in spellings.items() if known_as == model))
            progress(f"{same} are taken for one model, {model}: rename one if they are not")
    models = _labelled_models(graded, progress)
    kept = [place for place, scores in enumerate(graded) if not scores.keys().isdisjoint(models)]
    if len(kept) < MIN_LABELS:
        raise CorpusError(
            f"{labels} holds {len(kept)} prompts that can be read and are graded for a model with "
            f"{MIN_LABELS_OF_A_MODEL} scores or more; adaptation needs at least {MIN_LABELS}"
        )
    outcomes = np.array([[graded[place].get(name, math.nan) for name in models] for place in kept])
    return [prompts[place] for place in kept], models, outcomes


def _labelled_models(graded: Sequence[dict[str, float]], progress: Callable[[str], None]) -> list[str]:
    """Models with enough scores to improve on the frozen curve; reports the others."""
    counts = Counter(name for scores in graded for name in scores)
    for name, count in sorted(counts.items()):
        if count < MIN_LABELS_OF_A_MODEL:
            progress(
                f"{name} keeps the artefact's curve: it has {count} of the {MIN_LABELS_OF_A_MODEL} scores it needs"
            )
    return sorted(name for name, count in counts.items() if count >= MIN_LABELS_OF_A_MODEL)


def frozen_view(artefact: Artefact, prompts: Sequence[str]) -> View:
    """Computed exactly as in the data path."""
    encoder, traits = build_encoder(artefact), build_traits(artefact)
    vectors = np.array([encoder.encode(prompt).vector for prompt in prompts], dtype=np.float64)
    theta = vectors @ traits.weights
    scores = (1.0 - traits.level_share) * theta[:, 0] + traits.level_share * theta[:, 1]
    return View(scores, vectors)


def _frame(view: View) -> tuple[Matrix, Matrix]:
    """Mean and spread of score and vector in the domain; pooled dimensions share a spread, constant ones get 1."""
    design = np.c_[view.scores, view.vectors]
    spread = design.std(axis=0)
    spread[1 + HAND :] = np.sqrt((spread[1 + HAND :] ** 2).mean())
    return design.mean(axis=0), np.where(spread > LEAST_SPREAD, spread, 1.0)


def _near_scales(size: int) -> Matrix:
    """Weights hand-made features and pooled dimensions equally in the distance, whatever their number, and plain
    features more than other hand-made ones: they tell kinds of prompts apart."""
    hand = np.full(HAND, (1.0 - PLAIN_SHARE) / (HAND - len(PLAIN)))
    hand[[FEATURE_NAMES.index(name) for name in PLAIN]] = PLAIN_SHARE / len(PLAIN)
    return np.sqrt(np.r_[hand, np.full(size - HAND, 1.0 / max(size - HAND, 1))])


def _nearness(places: Matrix, landmarks: Matrix) -> Matrix:
    """exp(-squared distance), as Neighbours computes it for one prompt."""
    lengths = (places**2).sum(axis=1)[:, None] + (landmarks**2).sum(axis=1)
    return np.exp(-np.maximum(lengths - 2.0 * places @ landmarks.T, 0.0))


def _hardness(outcomes: Matrix) -> Matrix:
    """Failure plus what the best models gain, rescaled to the mean and spread of failures so that it remains a
    share."""
    outcomes = _filled(outcomes)
    failure = 1.0 - mean_known(outcomes)
    gap = quality_gap(outcomes) if outcomes.shape[1] > 1 else np.zeros(len(outcomes))
    return _ranked_as_failure(failure + gap, failure)


def _filled(outcomes: Matrix) -> Matrix:
    """Unknown scores as the model's mean, shifted as the prompt's known scores differ from theirs. Labels from traffic
    exist only for the model that was asked: alone, they would make a hard prompt look easy because the best model got
    it."""
    means = np.nanmean(outcomes, axis=0)
    moved = means + mean_known(outcomes - means)[:, None]
    return np.where(np.isnan(outcomes), np.clip(moved, 0.0, 1.0), outcomes)


def _solve(features: Matrix, targets: Matrix) -> tuple[Matrix, Matrix]:
    """Ridge with penalty 1 and a free constant, each column on its known rows: returns weights and constants."""
    weights, levels = np.zeros((features.shape[1], targets.shape[1])), np.zeros(targets.shape[1])
    known = np.isfinite(targets)
    for pattern in np.unique(known, axis=1).T:  # columns known on the same rows share a factorisation
        columns = np.flatnonzero((known == pattern[:, None]).all(axis=0))
        wanted = targets[np.ix_(pattern, columns)]
        middle, level = features[pattern].mean(axis=0), wanted.mean(axis=0)
        inner = features[pattern] - middle
        gram = inner.T @ inner
        gram[np.diag_indices_from(gram)] += 1.0
        weights[:, columns] = np.linalg.solve(gram, inner.T @ (wanted - level))
        levels[columns] = level - middle @ weights[:, columns]
    return weights, levels


def _expected(scores: Matrix, target: Matrix, *, is_failure: bool) -> float:
    """Prior slope on the frozen score: harder prompts fail more, for any model that fails at all."""
    spread = float(scores.std())
    if spread < LEAST_SPREAD:
        return 0.0
    known = np.isfinite(target)
    failures = float(target[known].mean()) if is_failure else 1.0 - float(target[known].mean())
    size = PRIOR_SLOPE * failures * float(target[known].std()) / spread
    return size if is_failure else -size


def _ranked_as_failure(targets: Matrix, failure: Matrix) -> Matrix:
    """The targets rescaled to the mean and spread of the failure shares, so that a difficulty remains a share."""
    size = float(targets.std())
    return failure.mean() + (targets - targets.mean()) * (float(failure.std()) / size if size > 0 else 0.0)
