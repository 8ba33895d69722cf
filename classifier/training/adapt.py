"""In-domain adaptation: a few hundred graded prompts of the deployment bend the frozen artefact to its traffic."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from classifier.adaptation import Adaptation
from classifier.artefact import Artefact, read_artefact, write_artefact
from classifier.encoder import HAND, LIMIT, Pieces
from classifier.features import FEATURE_NAMES
from classifier.load import SHIPPED, build_encoder, build_traits
from classifier.names import canonical
from classifier.prompt_lines import PromptFileError
from classifier.training.corpus import CorpusError, Matrix, mean_known, quality_gap, read_labels

MIN_LABELS = 30
PRIOR_SLOPE = 0.15


# What labels of one domain can settle soonest: how much there is to read and to count.
PLAIN = ("log_characters", "log_stem_words", "log_sentences", "log_numbers", "log_option_words")


@dataclass(frozen=True, slots=True)
class Penalties:
    """Ridge penalties of the correction; chosen by leave-one-source-out learning curves (docs/decisions)."""

    score: float = 50.0
    plain: float = 100.0
    hand: float = 4000.0
    pooled: float = 10_000.0
    piece: float = 60.0

    def diagonal(self, size: int) -> Matrix:
        hand = [self.plain if name in PLAIN else self.hand for name in FEATURE_NAMES]
        return np.r_[self.score, hand, np.full(size - HAND - 1, self.pooled)]


@dataclass(frozen=True, slots=True)
class View:
    """What the frozen artefact sees of prompts: combined trait score, standardised vector, and word pieces of each."""

    scores: Matrix
    vectors: Matrix
    pieces: Sequence[Pieces]

    def pick(self, rows: NDArray[np.intp]) -> "View":
        return View(self.scores[rows], self.vectors[rows], [self.pieces[row] for row in rows.tolist()])


def fit_adaptation(
    view: View, outcomes: Matrix, models: Sequence[str], *, vocabulary: int, penalties: Penalties | None = None
) -> Adaptation:
    """`outcomes` are prompts by models, NaN unknown; `vocabulary` is how many word pieces there are."""
    penalties = penalties or Penalties()
    design = np.c_[view.scores, view.vectors]
    centre, spread = design.mean(axis=0), design.std(axis=0)
    spread[1 + HAND :] = np.sqrt((spread[1 + HAND :] ** 2).mean())
    spread = np.where(spread > 1e-3, spread, 1.0)
    rows = np.clip((design - centre) / spread, -LIMIT, LIMIT)
    failure = 1.0 - mean_known(outcomes)
    gap = quality_gap(outcomes) if outcomes.shape[1] > 1 else np.zeros(len(outcomes))
    hard = _ranked_as_failure(failure + gap, failure)
    rarity = _rarity(view.pieces, vocabulary)
    spelt = _spelt(view.pieces, rarity)
    scales = 1.0 / penalties.diagonal(rows.shape[1])
    kernel = (rows * scales) @ rows.T + spelt @ spelt.T / penalties.piece
    weights = np.zeros((rows.shape[1] + 1, 1 + len(models)))
    piece_weights = np.zeros((vocabulary, 1 + len(models)), dtype=np.float32)
    known_pieces = np.flatnonzero(rarity)
    for number, target in enumerate([hard, *outcomes.T]):
        known = np.flatnonzero(np.isfinite(target))
        expected = _expected(rows[known, 0], target[known], is_failure=number == 0)
        dual, level = _solve(kernel[np.ix_(known, known)], target[known] - rows[known, 0] * expected)
        weights[:-1, number] = scales * (rows[known].T @ dual)
        weights[0, number] += expected
        weights[-1, number] = level
        piece_weights[known_pieces, number] = spelt[known].T @ dual / penalties.piece
    return Adaptation(
        tuple(models),
        centre.astype(np.float32),
        spread.astype(np.float32),
        weights.astype(np.float32),
        rarity.astype(np.float32),
        piece_weights,
        noise=4.0 / math.sqrt(len(rows)),
    )


def adapt(labels: Path, out: Path, *, base: Path | None = None) -> str:
    """Write the base artefact (the shipped one when not given) bent to the labels. Raises CorpusError."""
    artefact = read_artefact(base or SHIPPED)
    prompts, models, outcomes = _read_outcomes(labels)
    with threadpool_limits(limits=1):  # the same bits on every run
        view = frozen_view(artefact, prompts)
        adaptation = fit_adaptation(view, outcomes, models, vocabulary=len(artefact.pieces))
    tensors = dict(artefact.tensors)
    tensors |= {
        "domain_centre": adaptation.centre,
        "domain_spread": adaptation.spread,
        "domain_weights": adaptation.weights,
        "domain_piece_rarity": adaptation.piece_rarity,
        "domain_piece_weights": adaptation.piece_weights,
    }
    facts: dict[str, Any] = {
        "provenance": artefact.facts["provenance"],
        "model": artefact.facts["model"],
        "adaptation": {
            "models": models,
            "noise": adaptation.noise,
            "labels": len(prompts),
            "labels_sha256": hashlib.sha256(labels.read_bytes()).hexdigest(),
            "base_sha256": artefact.sha256,
        },
    }
    return write_artefact(out, tensors, artefact.pieces, facts)


def _read_outcomes(labels: Path) -> tuple[list[str], list[str], Matrix]:
    """Prompts that somebody answered, the models by canonical name, and the scores of each; NaN where not known."""
    prompts: list[str] = []
    graded: list[dict[str, float]] = []
    try:
        for line, row in read_labels(labels):
            scores = _known_scores(row["scores"], f"{labels}:{line}")
            if scores:
                prompts.append(row["prompt"])
                graded.append(scores)
    except PromptFileError as error:
        raise CorpusError(str(error)) from error
    if len(prompts) < MIN_LABELS:
        raise CorpusError(f"{labels} holds {len(prompts)} graded prompts; adaptation needs at least {MIN_LABELS}")
    models = sorted({name for scores in graded for name in scores})
    return prompts, models, np.array([[scores.get(name, math.nan) for name in models] for scores in graded])


def _known_scores(scores: dict[str, Any], where: str) -> dict[str, float]:
    """By canonical name; null and NaN are not known. Two spellings of one model keep their mean."""
    found: dict[str, list[float]] = {}
    for name, value in scores.items():
        if value is None or (isinstance(value, float) and math.isnan(value)):
            continue
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0.0 <= value <= 1.0:
            raise CorpusError(f"{where} has a score of {value!r}; scores are between 0 and 1")
        found.setdefault(canonical(name), []).append(float(value))
    return {name: sum(values) / len(values) for name, values in found.items()}


def frozen_view(artefact: Artefact, prompts: Sequence[str]) -> View:
    """Exactly as the data path computes them."""
    encoder, traits = build_encoder(artefact), build_traits(artefact)
    read = [encoder.encode(prompt) for prompt in prompts]
    vectors = np.array([one.vector for one in read], dtype=np.float64)
    theta = vectors @ traits.weights
    scores = (1.0 - traits.level_share) * theta[:, 0] + traits.level_share * theta[:, 1]
    return View(scores, vectors, [one.pieces for one in read])


def _solve(kernel: Matrix, targets: Matrix) -> tuple[Matrix, float]:
    """Ridge with a free constant in its dual form: fewer labels than word pieces."""
    size = len(targets)
    system = np.block([[kernel + np.eye(size), np.ones((size, 1))], [np.ones((1, size)), np.zeros((1, 1))]])
    solved = np.linalg.solve(system, np.r_[targets, 0.0])
    return solved[:-1], float(solved[-1])


def _expected(scores: Matrix, targets: Matrix, *, is_failure: bool) -> float:
    """The slope on the frozen score before any label: harder prompts are failed more, by whoever fails at all."""
    failures = float(targets.mean()) if is_failure else 1.0 - float(targets.mean())
    size = PRIOR_SLOPE * failures * float(targets.std()) / max(float(scores.std()), 1e-9)
    return size if is_failure else -size


def _rarity(pieces: Sequence[Pieces], vocabulary: int) -> Matrix:
    """Log inverse document frequency of every word piece that at least two prompts have; 0 for the others."""
    found = np.zeros(vocabulary)
    for one in pieces:
        found[np.unique(one.ids)] += 1.0
    return np.where(found >= 2, np.log(len(pieces) / np.maximum(found, 1.0)), 0.0)


def _spelt(pieces: Sequence[Pieces], rarity: Matrix) -> Matrix:
    """Prompts by known word pieces, each row of length 1."""
    column = np.cumsum(rarity > 0) - 1
    rows = np.zeros((len(pieces), int((rarity > 0).sum())))
    for number, one in enumerate(pieces):
        weighed = one.weights * rarity[one.ids]
        size = float(np.sqrt(weighed @ weighed))
        known = rarity[one.ids] > 0
        if size > 0.0:
            np.add.at(rows[number], column[one.ids[known]], weighed[known] / size)
    return rows


def _ranked_as_failure(targets: Matrix, failure: Matrix) -> Matrix:
    """The targets with the mean and spread of the failure shares: a difficulty stays a share."""
    size = float(targets.std())
    return failure.mean() + (targets - targets.mean()) * (float(failure.std()) / size if size > 0 else 0.0)
