"""Leave-one-source-out: the traits of every prompt from a fit that never saw its source's family."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from classifier.training.corpus import SEED_SOURCE, Corpus, Matrix, difficulty_targets, failure_shares
from classifier.training.ridge import Recipe, Ridge, Sample, fit_ridge, unit_weights

EVERYTHING = "everything"


@dataclass(frozen=True, slots=True)
class Sheet:
    """All prompts, the hand-written seeds last, ready to fit: raw vectors, both targets, and who belongs together."""

    vectors: Matrix
    centred: Matrix
    level: Matrix
    units: Sequence[str]
    families: Sequence[str]


@dataclass(frozen=True, slots=True)
class TraitFits:
    """`centred` ranks prompts within a source; `level` says how hard they are over all sources."""

    centred: Ridge
    level: Ridge

    def traits(self, vectors: Matrix) -> Matrix:
        return np.c_[self.centred.score(vectors), self.level.score(vectors)]


def build_sheet(corpus: Corpus, vectors: Matrix, seeds: Sequence[tuple[float, str]], seed_vectors: Matrix) -> Sheet:
    """Join the corpus and the seeds; a level is the logit of the share of models that fail."""
    levels = np.array([level for level, _ in seeds])
    return Sheet(
        np.r_[vectors, seed_vectors],
        np.r_[difficulty_targets(corpus), levels - levels.mean()],
        logit(np.r_[failure_shares(corpus), levels]),
        [*corpus.units, *[SEED_SOURCE] * len(seeds)],
        [*corpus.families, *[SEED_SOURCE] * len(seeds)],
    )


def fit_traits(sheet: Sheet, recipe: Recipe, rows: NDArray[np.bool_] | None = None) -> TraitFits:
    """Fit both traits on the chosen rows (a boolean mask), or on all."""
    chosen = np.flatnonzero(np.ones(len(sheet.units), bool) if rows is None else rows).tolist()
    units = [sheet.units[row] for row in chosen]
    weights = unit_weights(units, recipe.unit_exponent)
    weights[np.array(units) == SEED_SOURCE] *= recipe.seed_weight
    vectors = sheet.vectors[chosen]
    centred = fit_ridge(Sample(vectors, sheet.centred[chosen], units, weights), recipe)
    equal = unit_weights(units, 0.75)
    equal[np.array(units) == SEED_SOURCE] *= recipe.seed_weight
    level = fit_ridge(Sample(vectors, sheet.level[chosen], [EVERYTHING] * len(chosen), equal), recipe)
    return TraitFits(centred, level)


def left_out_traits(sheet: Sheet, recipe: Recipe) -> Matrix:
    """Traits of every row from the fit without its family; seeds are always trained on, and scored by the full fit."""
    families = np.array(sheet.families)
    traits = np.zeros((len(families), 2))
    for family in sorted(set(sheet.families)):
        held = families == family
        fits = fit_traits(sheet, recipe, None if family == SEED_SOURCE else ~held)
        traits[held] = fits.traits(sheet.vectors[held])
    return traits


def logit(share: Matrix) -> Matrix:
    clipped = np.clip(share, 0.02, 0.98)
    return np.log(clipped / (1.0 - clipped))
