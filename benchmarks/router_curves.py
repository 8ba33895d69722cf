"""APGR of one domain by the number of labelled prompts, with traits that never saw its family."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from classifier.encoder import Encoder
from classifier.lexicon import build_index
from classifier.metrics import tie_aware_apgr
from classifier.training.adapt import View, fit_adaptation
from classifier.training.build import Bench
from classifier.training.corpus import Matrix, strong_and_middle
from classifier.training.folds import TraitFits, fit_traits
from classifier.training.ridge import Recipe
from classifier.words import Vocabulary

LABELS = (100, 400, 800, 1500)
CURVES: Mapping[str, tuple[str, ...]] = {
    "mmlu-pro": ("mmlu-pro-stemez", "mmlu-pro-theoremQA", "mmlu-pro-scibench"),
    "arc+openbook+commonsense": ("llmrouter-arc_challenge", "llmrouter-openbook_qa", "llmrouter-commonsense_qa"),
    "gsm8k-train": ("llmrouter-gsm8k",),
    "open-qa": ("llmrouter-natural_qa", "llmrouter-trivia_qa"),
    "crux": ("zeroeval-crux",),
}
DRAWS = 4
LEAST_TEST_PROMPTS = 100


def combined(traits: Matrix, recipe: Recipe) -> Matrix:
    return traits @ np.array([1.0 - recipe.level_share, recipe.level_share])


def curve(bench: Bench, recipe: Recipe, members: Sequence[str]) -> dict[str, Any]:
    """APGR on the rest of a domain, by how many of its prompts are labelled for one pair; mean over draws."""
    rows = np.flatnonzero(np.isin(np.array(bench.corpus.sources), members))
    graded = bench.corpus.scores[rows]
    seeds = len(bench.sheet.units) - len(bench.corpus.units)
    held = np.r_[np.isin(np.array(bench.corpus.sources), members), np.zeros(seeds, bool)]
    fits = fit_traits(bench.sheet, recipe, ~held)
    view = view_of(bench, fits, recipe, rows)
    best, middle = strong_and_middle(graded, bench.corpus.models)
    outcomes = np.nan_to_num(graded[:, [best[0], middle[-1]]])
    gap = outcomes[:, 0] - outcomes[:, 1]
    found: dict[str, Any] = {
        "prompts": len(rows),
        "pair": [bench.corpus.models[best[0]], bench.corpus.models[middle[-1]]],
        "gap": round(float(gap.mean()), 4),
        "length": round(tie_aware_apgr(bench.vectors[rows, 0], gap), 4),
        "0": round(tie_aware_apgr(view.scores, gap), 4),
    }
    for labels in LABELS:
        if labels > len(rows) - LEAST_TEST_PROMPTS:
            continue
        values: list[float] = []
        for seed in range(DRAWS):
            order = np.random.default_rng(seed).permutation(len(rows))
            train, test = order[:labels], order[labels:]
            adaptation = fit_adaptation(view.pick(train), outcomes[train], ("strong", "weak"))
            predicted = np.array(
                [adaptation.predict(float(view.scores[row]), view.vectors[row]) for row in test.tolist()]
            )
            values.append(tie_aware_apgr(predicted[:, 1] - predicted[:, 2], gap[test]))
        found[str(labels)] = round(float(np.mean(values)), 4)
    return found


def view_of(bench: Bench, fits: TraitFits, recipe: Recipe, rows: NDArray[np.intp]) -> View:
    """What an artefact with these traits would see of the prompts."""
    table, frame = bench.table, fits.frame
    vocabulary = Vocabulary(table.pieces, build_index())
    frame32 = (frame.centre.astype(np.float32), frame.spread.astype(np.float32))
    encoder = Encoder(vocabulary, table.vectors, table.scale, table.weights, *frame32)
    vectors = np.array([encoder.encode(bench.corpus.prompts[row]).vector for row in map(int, rows)], dtype=np.float64)
    return View(combined(fits.traits(bench.vectors[rows]), recipe), vectors)
