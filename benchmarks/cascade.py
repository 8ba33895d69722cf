"""What a cascade gains on graded answers, by the quality of its verifier: simulated, since labels hold no answers.

    python -m benchmarks.cascade --data DIR --json

A verifier here is two rates: the shares of wrong and of right answers that it refuses. The weak model is the middle of
a file's ranking, the strong one its best. Random routing recovers as much of the gap as its share of strong calls.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.report import build_report, options, publish, told
from classifier.training.corpus import CorpusError, read_rows

VERIFIERS: Mapping[str, tuple[float, float]] = {
    "perfect": (1.0, 0.0),
    "refuses 80 % of wrong, 20 % of right": (0.8, 0.2),
    "refuses 60 % of wrong, 30 % of right": (0.6, 0.3),
    "form alone: 20 % of wrong, none of right": (0.2, 0.0),
    "a coin": (0.5, 0.5),
}


class Pair(NamedTuple):
    """Scores of the same prompts, from 0 to 1."""

    weak: Sequence[float]
    strong: Sequence[float]


class Cascaded(NamedTuple):
    """Mean score, the share of prompts that were escalated, and the share of the quality gap that is recovered."""

    score: float
    strong_share: float
    recovered: float


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="the folder of graded prompts")
    chosen = parser.parse_args()
    with told(CorpusError):
        files = {path.stem: measure(read_rows(path)) for path in sorted(chosen.data.glob("*.jsonl"))}
    if not files:
        raise SystemExit(f"{chosen.data} holds no .jsonl file of graded prompts")
    publish(build_report("cascade", files, []), chosen)


def measure(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One file: its pair, and every verifier on it."""
    weak, strong, pair = choose_pair(rows)
    found: dict[str, Any] = {"weak": weak, "strong": strong, "prompts": len(pair.weak)}
    found |= {
        "weak_score": round(statistics.fmean(pair.weak), 4),
        "strong_score": round(statistics.fmean(pair.strong), 4),
    }
    for name, (wrong, right) in VERIFIERS.items():
        found[name] = {field: round(value, 4) for field, value in cascade(pair, wrong, right)._asdict().items()}
    return found


def choose_pair(rows: Sequence[Mapping[str, Any]]) -> tuple[str, str, Pair]:
    """Names and scores, among the models that have a score for at least half of the prompts."""
    scores: dict[str, dict[int, float]] = {}
    for number, row in enumerate(rows):
        for model, score in row["scores"].items():
            if score is not None and not math.isnan(score):
                scores.setdefault(model, {})[number] = float(score)
    ranked = sorted(
        (statistics.fmean(known.values()), model) for model, known in scores.items() if 2 * len(known) >= len(rows)
    )
    weak, strong = ranked[len(ranked) // 2][1], ranked[-1][1]
    both = sorted(scores[weak].keys() & scores[strong].keys())
    return weak, strong, Pair([scores[weak][n] for n in both], [scores[strong][n] for n in both])


def cascade(pair: Pair, wrong: float, right: float) -> Cascaded:
    """The expected result with a verifier that refuses these shares; a score between 0 and 1 counts as partly right."""
    refused = [wrong * (1.0 - score) + right * score for score in pair.weak]
    kept_right = [(1.0 - right) * score for score in pair.weak]
    score = statistics.fmean(k + r * s for k, r, s in zip(kept_right, refused, pair.strong, strict=True))
    low, high = statistics.fmean(pair.weak), statistics.fmean(pair.strong)
    return Cascaded(score, statistics.fmean(refused), (score - low) / (high - low) if high > low else 0.0)


if __name__ == "__main__":
    main()
