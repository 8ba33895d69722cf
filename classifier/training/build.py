"""From corpus to artefact: computes every number of the shipped classifier. On one kind of processor, identical inputs
give identical bits."""

import math
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.isotonic import IsotonicRegression
from threadpoolctl import threadpool_limits

from classifier.artefact import write_artefact
from classifier.encoder import HAND, Encoder
from classifier.lexicon import build_index
from classifier.logits import logit
from classifier.names import billions_of_parameters
from classifier.seeds import EVERYDAY, judgement_hashes, load_seeds, load_topics, seed_kinds
from classifier.training.corpus import NEVER_FITTED, Corpus, Matrix, failure_shares, load_corpus
from classifier.training.distil import PACKAGE, TokenTable, distil
from classifier.training.folds import Judgement, Sheet, TraitFits, build_sheet, fit_traits, left_out_traits
from classifier.training.heads import FittedHead, fit_heads
from classifier.training.ridge import Recipe, centre_within
from classifier.words import Vocabulary

CODE_VERSION = 5
"""Incremented when features or training change the result for the same data."""
REFERENCE_PROMPTS = 64
KNOTS = 24
CERTAIN = (0.01, 0.99)
"""Shares beyond these count as these."""
LENGTH_PENALTY = 3000.0
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Bench:
    """Shared by training and evaluation: measured prompts, and the encoder that measured them."""

    corpus: Corpus
    table: TokenTable
    vectors: Matrix
    sheet: Sheet
    seed_kinds: Sequence[str]

    @property
    def seed_rows(self) -> int:
        return len(self.seed_kinds)


def open_bench(folder: Path, encoder: Path | None, progress: Progress, *, with_never_fitted: bool = False) -> Bench:
    """Loads the prompts, distils the token table, and measures every prompt once."""
    progress("reading the graded prompts")
    corpus, seeds, topics = load_corpus(folder, with_never_fitted=with_never_fitted), load_seeds(), load_topics()
    progress("distilling the token table")
    table = distil(encoder)
    measure = measure_with(table)
    progress(f"measuring {len(corpus.prompts):,} prompts")
    vectors = measure(corpus.prompts).astype(np.float64)
    judgement = Judgement(
        measure([prompt for _, prompt in seeds]).astype(np.float64),
        np.array([level for level, _ in seeds]),
        measure([words for _, words in topics]).astype(np.float64),
        np.array([level for level, _ in topics]),
    )
    return Bench(corpus, table, vectors, build_sheet(corpus, vectors, judgement), seed_kinds())


def measure_with(table: TokenTable) -> Callable[[Sequence[str]], NDArray[np.float32]]:
    """A function from texts to raw vectors, one per row."""
    size = HAND + table.vectors.shape[1]
    vocabulary = Vocabulary(table.pieces, build_index())
    return Encoder(vocabulary, table.vectors, table.scale, table.weights, np.zeros(size), np.ones(size)).measure_all


def train(folder: Path, out: Path, *, encoder: Path | None = None, progress: Progress = print) -> str:
    """Trains on the folder of graded prompts and writes the artefact; returns its hash."""
    with threadpool_limits(limits=1):  # fixed summation order: the same bits on every run
        bench = open_bench(folder, encoder, progress)
        recipe = Recipe()
        progress("fitting the traits, once per left-out source and once on all")
        held_out = left_out_traits(bench.sheet, recipe)
        fits = fit_traits(bench.sheet, recipe)
        progress("fitting the heads and the calibration")
        tensors, model = assemble(bench, fits, held_out)
    facts: dict[str, Any] = {
        "provenance": {
            "code_version": CODE_VERSION,
            "recipe": asdict(recipe),
            "training_files": list(bench.corpus.files),
            "never_fitted": NEVER_FITTED,
            "seeds": bench.seed_rows,
            "topics": len(bench.sheet.judgement.topics),
            "judgement_sha256": judgement_hashes(),
            "encoder": PACKAGE,
            "encoder_licence": "Apache-2.0",
            "python": platform.python_version(),
            "numpy": np.__version__,
        },
        "model": model,
    }
    return write_artefact(out, tensors, bench.table.pieces, facts)


def assemble(bench: Bench, fits: TraitFits, held_out: Matrix) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Tensors and JSON facts of the model part of the artefact."""
    corpus, recipe = bench.corpus, Recipe()
    reference = _reference(held_out)
    scores = np.vstack([corpus.scores, _seed_scores(bench)])
    weights = _family_weights(bench)
    heads, knots = fit_heads(held_out, scores, weights, reference)
    level = recipe.level_share
    combined = held_out @ np.array([1.0 - level, level])
    knots_score, knots_difficulty = calibrate(combined, _failure(bench), _traffic_weights(bench, weights))
    weights_of_traits = np.c_[fits.centred.weights, fits.level.weights]
    tokens = log_output_tokens(corpus)
    tensors: dict[str, np.ndarray] = {
        "token_vectors": bench.table.vectors,
        "token_scale": bench.table.scale,
        "token_weights": bench.table.weights,
        "centre": fits.frame.centre,
        "spread": fits.frame.spread,
        "trait_weights": weights_of_traits,
        "covariance": fits.centred.covariance,
        "reference": reference,
        "knots_score": knots_score,
        "knots_difficulty": knots_difficulty,
        "length_weights": _length_weights(bench, fits),
    }
    small = {name: tensor if tensor.dtype == np.int8 else tensor.astype(np.float32) for name, tensor in tensors.items()}
    return small, {
        "source_variance": source_variance(held_out, heads, bench),
        "level_share": level,
        "slope_by_ability": knots,
        "size_scale": size_scale({corpus.models[number]: head.ability for number, head in heads.items()}),
        "heads": {corpus.models[number]: _head(head, tokens[number]) for number, head in sorted(heads.items())},
    }


def calibrate(scores: Matrix, failures: Matrix, weights: Matrix) -> tuple[Matrix, Matrix]:
    """Isotonic failure share by score, thinned to knots and slightly tilted, so that flat parts keep the order."""
    grid = np.quantile(scores, np.linspace(0.005, 0.995, KNOTS))
    fit = IsotonicRegression(y_min=0.01, y_max=0.99, out_of_bounds="clip").fit(scores, failures, sample_weight=weights)
    smooth = np.array([fit.predict(scores[_near(scores, knot)]).mean() for knot in grid])
    wide = np.r_[grid[0] - 3.0, grid, grid[-1] + 3.0]
    level = np.r_[max(smooth[0] - 0.08, 0.005), smooth, min(smooth[-1] + 0.08, 0.995)]
    tilt = 0.02 * (wide - wide[0]) / (wide[-1] - wide[0]) - 0.01
    return wide, np.clip(np.maximum.accumulate(level) + tilt, 0.001, 0.999)


def _near(scores: Matrix, knot: float) -> NDArray[np.intp]:
    return np.argsort(np.abs(scores - knot), kind="stable")[: max(len(scores) // 25, 1)]


def source_variance(traits: Matrix, heads: Mapping[int, FittedHead], bench: Bench) -> float:
    """Variance over sources of a head's error, in logits, on sources that its traits were not fitted on."""
    units = np.array(bench.corpus.units)
    offsets: list[float] = []
    for number, head in heads.items():
        scores = bench.corpus.scores[:, number]
        predicted = 1.0 / (1.0 + np.exp(-(head.offset - traits[: len(units)] @ np.array(head.slopes))))
        for unit in sorted(set(bench.corpus.units)):
            rows = (units == unit) & np.isfinite(scores)
            if rows.sum() >= 50:
                offsets.append(
                    logit(float(scores[rows].mean()), *CERTAIN) - logit(float(predicted[rows].mean()), *CERTAIN)
                )
    return float(np.var(offsets))


def size_scale(abilities: Mapping[str, float]) -> list[float]:
    """Intercept and slope of logit ability on log10 of 1e9 parameters, over instruction models that state a size."""
    known = [
        (math.log10(size), logit(ability, *CERTAIN))
        for name, ability in abilities.items()
        if (size := billions_of_parameters(name)) and ("instruct" in name or "chat" in name or "-it" in name)
    ]
    if len(known) < 3:
        return [-1.0, 0.85]
    sizes, logits = np.array(known).T
    slope, intercept = np.polyfit(sizes, logits, 1)
    return [round(float(intercept), 4), round(float(slope), 4)]


def log_output_tokens(corpus: Corpus) -> dict[int, float]:
    """Log of each model's median answer length, averaged over sources with counts; the median model's for the rest."""
    units = np.array(corpus.units)
    known: dict[int, float] = {}
    for number in range(len(corpus.models)):
        medians = [
            float(np.median(corpus.output_tokens[rows, number]))
            for unit in sorted(set(corpus.units))
            if np.isfinite(
                corpus.output_tokens[rows := (units == unit) & np.isfinite(corpus.output_tokens[:, number]), number]
            ).sum()
            >= 20
        ]
        if medians:
            known[number] = float(np.mean(np.log(np.maximum(medians, 1.0))))
    usual = float(np.median(list(known.values()))) if known else math.log(200.0)
    return {number: known.get(number, usual) for number in range(len(corpus.models))}


def _length_weights(bench: Bench, fits: TraitFits) -> Matrix:
    """Shared ridge regression of log answer length, within source and model, on the hand-made features."""
    logs = np.log(np.maximum(bench.corpus.output_tokens, 1.0))
    known = np.isfinite(logs)
    target = np.where(known, logs, 0.0).sum(axis=1) / np.maximum(known.sum(axis=1), 1)
    rows = np.flatnonzero(known.any(axis=1))
    units = [bench.corpus.units[row] for row in rows.tolist()]
    inner = centre_within(fits.frame.standardise(bench.vectors[rows])[:, :HAND], units)
    weights = np.zeros(bench.vectors.shape[1])
    precision = inner.T @ inner + LENGTH_PENALTY * np.eye(HAND)
    weights[:HAND] = np.linalg.solve(precision, inner.T @ centre_within(target[rows], units))
    return weights


def _reference(traits: Matrix) -> Matrix:
    """Prompts evenly spaced along the level: the population over which an ability is a mean."""
    order = np.argsort(traits[:, 1], kind="stable")
    return traits[order[np.linspace(0, len(order) - 1, REFERENCE_PROMPTS).astype(int)]]


def _family_weights(bench: Bench) -> Matrix:
    """Equal total weight per family, scaled to keep the number of prompts; rows not fitted get none."""
    _, inverse, counts = np.unique(np.array(bench.sheet.families), return_inverse=True, return_counts=True)
    weights = bench.sheet.fitted / counts[inverse]
    return weights / weights.mean()


def _traffic_weights(bench: Bench, weights: Matrix) -> Matrix:
    """Graded prompts are mostly exams, unlike a deployment's traffic: half of the weight is on the seeds, and of that
    half on everyday prompts and half spread over the other kinds."""
    kinds = np.array(bench.seed_kinds)
    names, counts = np.unique(kinds, return_counts=True)
    shares = {name: (0.5 if name == EVERYDAY else 0.5 / (len(names) - 1)) for name in names.tolist()}
    seeds = np.array([shares[kind] for kind in kinds.tolist()]) / counts[np.searchsorted(names, kinds)]
    graded = weights[: -len(seeds)]
    return np.r_[graded / graded.sum(), seeds]


def _failure(bench: Bench) -> Matrix:
    seeds = 1.0 / (1.0 + np.exp(-bench.sheet.level[-bench.seed_rows :]))
    return np.r_[failure_shares(bench.corpus), seeds]


def _seed_scores(bench: Bench) -> Matrix:
    """Each model's score on the seeds by the Rasch model, from its mean and each seed's stated level."""
    means = np.nan_to_num(np.nanmean(bench.corpus.scores, axis=0), nan=0.5)
    ability = np.array([logit(float(mean), *CERTAIN) for mean in means])
    easiness = -bench.sheet.level[-bench.seed_rows :]
    return 1.0 / (1.0 + np.exp(-(easiness[:, None] + (ability - np.median(ability))[None, :])))


def _head(head: FittedHead, log_tokens: float) -> dict[str, Any]:
    return {
        "offset": round(head.offset, 6),
        "slopes": [round(slope, 6) for slope in head.slopes],
        "deviation": head.deviation,
        "ability": round(head.ability, 4),
        "log_tokens": round(log_tokens, 4),
    }
