"""Leave-one-source-out: each prompt's traits from a fit that never saw its source's family."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from classifier.features import SHAPE_NAMES
from classifier.training.corpus import (
    NEVER_FITTED,
    SEED_SOURCE,
    Corpus,
    CorpusError,
    Matrix,
    difficulty_targets,
    failure_shares,
)
from classifier.training.ridge import (
    Frame,
    Recipe,
    Ridge,
    Sample,
    build_frame,
    centre_within,
    fit_ridge,
    penalties,
    unit_weights,
    written_effects,
)

EVERYTHING = "everything"


@dataclass(frozen=True, slots=True)
class Judgement:
    """Raw vectors and stated levels of the hand-written prompts and topics."""

    seeds: Matrix
    seed_levels: Matrix
    topics: Matrix
    topic_levels: Matrix


@dataclass(frozen=True, slots=True)
class Sheet:
    """All prompts, the hand-written seeds last, ready to fit: raw vectors, both targets, and grouping.

    Rows that are not `fitted` are scored and never learnt from.
    """

    vectors: Matrix
    centred: Matrix
    level: Matrix
    units: Sequence[str]
    sources: Sequence[str]
    families: Sequence[str]
    fitted: NDArray[np.bool_]
    judgement: Judgement


@dataclass(frozen=True, slots=True)
class TraitFits:
    """`centred` ranks prompts within a source; `level` measures difficulty across sources."""

    frame: Frame
    centred: Ridge
    level: Ridge

    def traits(self, vectors: Matrix) -> Matrix:
        return self.frame.standardise(vectors) @ np.c_[self.centred.weights, self.level.weights]


def build_sheet(corpus: Corpus, vectors: Matrix, judgement: Judgement) -> Sheet:
    """Joins corpus and seeds; a level is the logit of the share of models that fail."""
    levels = judgement.seed_levels
    seeds = [SEED_SOURCE] * len(levels)
    return Sheet(
        np.r_[vectors, judgement.seeds],
        np.r_[difficulty_targets(corpus), levels - levels.mean()],
        logit(np.r_[failure_shares(corpus), levels]),
        [*corpus.units, *seeds],
        [*corpus.sources, *seeds],
        [*corpus.families, *seeds],
        np.r_[~np.isin(np.array(corpus.sources), list(NEVER_FITTED)), np.ones(len(levels), bool)],
        judgement,
    )


def fit_traits(sheet: Sheet, recipe: Recipe, rows: NDArray[np.bool_] | None = None) -> TraitFits:
    """Fits both traits on the masked rows that may be fitted, by default on all of them."""
    mask = sheet.fitted if rows is None else sheet.fitted & rows
    frame = build_frame(sheet.vectors[mask])
    return TraitFits(frame, _fit_centred(sheet, recipe, frame, mask), _fit_level(sheet, recipe, frame, mask))


def _fit_centred(sheet: Sheet, recipe: Recipe, frame: Frame, mask: NDArray[np.bool_]) -> Ridge:
    """A weighted mean of judgement, graded prompts and prior effects: none of them transfers well alone."""
    chosen = np.flatnonzero(mask & (np.array(sheet.units) != SEED_SOURCE)).tolist()
    units = [sheet.units[row] for row in chosen]
    rows = frame.standardise(sheet.vectors[chosen])
    sample = Sample(rows, sheet.centred[chosen], units, unit_weights(units, recipe.unit_exponent))
    graded = fit_ridge(sample, penalties(rows.shape[1], hand=recipe.hand_penalty, pooled=recipe.pooled_penalty))
    opinions = (
        (recipe.graded_share, graded.weights),
        (recipe.judged_share, _fit_judgement(sheet.judgement, frame, recipe)),
        (recipe.prior_share, written_effects(frame)),
    )
    within = centre_within(rows, [sheet.sources[row] for row in chosen])
    spreads = [float((within @ weights).std()) or 1.0 for _, weights in opinions]
    mixed = sum((share / size * weights for (share, weights), size in zip(opinions, spreads, strict=True)), np.zeros(1))
    return Ridge(mixed, graded.covariance / spreads[0] ** 2).scaled(frame.standardise(sheet.vectors[mask]))


def _fit_judgement(judgement: Judgement, frame: Frame, recipe: Recipe) -> Matrix:
    """Topics have words but no form, so their shape features are set to the average prompt's."""
    seeds, topics = frame.standardise(judgement.seeds), frame.standardise(judgement.topics)
    topics[:, : len(SHAPE_NAMES)] = 0.0
    sample = Sample(
        np.r_[seeds, topics],
        np.r_[judgement.seed_levels, judgement.topic_levels],
        ["seeds"] * len(seeds) + ["topics"] * len(topics),
        np.r_[np.ones(len(seeds)), np.full(len(topics), recipe.topic_weight)],
    )
    penalty = penalties(seeds.shape[1], hand=recipe.judged_hand_penalty, pooled=recipe.judged_pooled_penalty)
    return fit_ridge(sample, penalty).weights


def _fit_level(sheet: Sheet, recipe: Recipe, frame: Frame, mask: NDArray[np.bool_]) -> Ridge:
    chosen = np.flatnonzero(mask).tolist()
    units = [sheet.units[row] for row in chosen]
    weights = unit_weights(units, 0.75)
    weights[np.array(units) == SEED_SOURCE] *= recipe.seed_weight
    rows = frame.standardise(sheet.vectors[chosen])
    sample = Sample(rows, sheet.level[chosen], [EVERYTHING] * len(chosen), weights)
    penalty = penalties(rows.shape[1], hand=recipe.hand_penalty, pooled=recipe.pooled_penalty)
    return fit_ridge(sample, penalty).scaled(rows)


def left_out_traits(sheet: Sheet, recipe: Recipe) -> Matrix:
    """Each row's traits from the fit without its family; seeds are always trained on, and scored by the full fit.
    Raises CorpusError if there is only one family."""
    families = np.array(sheet.families)
    if len(set(sheet.families) - {SEED_SOURCE}) < 2:
        raise CorpusError("training needs prompts of two sources (`source`): each is scored by a fit without it")
    traits = np.zeros((len(families), 2))
    for family in sorted(set(sheet.families)):
        held = families == family
        fits = fit_traits(sheet, recipe, None if family == SEED_SOURCE else ~held)
        traits[held] = fits.traits(sheet.vectors[held])
    return traits


def logit(share: Matrix) -> Matrix:
    clipped = np.clip(share, 0.02, 0.98)
    return np.log(clipped / (1.0 - clipped))
