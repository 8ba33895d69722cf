"""Judges of a router on the training files, fixed before any candidate was tried. Knows prompts and scores, no router.

In a held-out benchmark (MMLU, GSM8K, MT-Bench) there is one source and a strong model, GPT-4, that mostly succeeds, so
the gain is in what the weak model fails. The files' strongest models fail far more often. Each judge is therefore one
traffic (a source, or sources of one kind), strong means *any of the three best models is right*, and weak is the mean
of the models between the best 40 and 80 %. Three further sets of prompts have their author's judgement of the gap; none
of them is a seed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from classifier.training.corpus import FORMAT_FAILURES, Corpus, Matrix, mean_known, strong_and_middle

JUDGED = Path(__file__).parent / "router_data"
JUDGED_SETS = ("everyday", "exams", "word_problems")
BEST = 3
EXAMS = ("llmrouter-arc_challenge", "llmrouter-openbook_qa", "llmrouter-commonsense_qa")
# kind -> judge -> sources
JUDGES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "exams": {
        "mmlu-pro, all categories": ("mmlu-pro-stemez", "mmlu-pro-theoremQA", "mmlu-pro-scibench"),
        "arc": EXAMS[:1],
        "openbook": EXAMS[1:2],
        "commonsense": EXAMS[2:],
        "the three with gpqa": (*EXAMS, "llmrouter-gpqa"),
    },
    "word problems and mathematics": {
        "gsm8k items": ("llmrouter-gsm8k",),
        "math": ("llmrouter-math",),
        "math level 5": ("zeroeval-math-l5",),
    },
    "code": {"crux": ("zeroeval-crux",), "human_eval": ("llmrouter-human_eval",)},
    "facts": {"open questions": ("llmrouter-natural_qa", "llmrouter-trivia_qa")},
    "mixtures": {
        "kor-bench": ("kor-bench",),
        "llmrouter_mixed": (
            *EXAMS,
            "llmrouter-agentverse-logicgrid",
            "llmrouter-commongen",
            "llmrouter-gpqa",
            "llmrouter-gsm8k",
            "llmrouter-human_eval",
            "llmrouter-math",
            "llmrouter-natural_qa",
            "llmrouter-trivia_qa",
        ),
    },
}


@dataclass(frozen=True, slots=True)
class Judged:
    """Prompts of several kinds, with the gap between a strong and a weak model that their author expects."""

    kinds: tuple[str, ...]
    gaps: Matrix
    prompts: tuple[str, ...]


def load_judged(name: str) -> Judged:
    """One of JUDGED_SETS, each written before the models compared on it were fitted."""
    lines = (JUDGED / f"judged_{name}.tsv").read_text(encoding="utf-8").splitlines()
    kinds, gaps, prompts = zip(*(line.split("\t", 2) for line in lines), strict=True)
    return Judged(
        kinds, np.array([float(gap) for gap in gaps]), tuple(prompt.replace("\\n", "\n") for prompt in prompts)
    )


def mendable_gap(corpus: Corpus) -> Matrix:
    """Per prompt: the highest score of its collection's three best models, less the middling models' mean."""
    gap = np.zeros(len(corpus.prompts))
    names = np.array(corpus.collections)
    for collection in sorted(set(corpus.collections)):
        rows = names == collection
        _, middle = strong_and_middle(corpus.scores[rows], corpus.models)
        best = np.nan_to_num(corpus.scores[np.ix_(rows, _best(corpus, rows))]).max(axis=1)
        gap[rows] = best - mean_known(corpus.scores[np.ix_(rows, middle)])
    return gap


def rows_of(corpus: Corpus, sources: tuple[str, ...]) -> NDArray[np.bool_]:
    return np.isin(np.array(corpus.sources), sources)


def _best(corpus: Corpus, rows: NDArray[np.bool_]) -> list[int]:
    scores = corpus.scores[rows]
    answered = np.isfinite(scores).mean(axis=0) > 0.6
    answered[[number for number, name in enumerate(corpus.models) if name in FORMAT_FAILURES]] = False
    known = np.flatnonzero(answered)
    return known[np.argsort(-np.nanmean(scores[:, known], axis=0), kind="stable")][:BEST].tolist()
