"""Graded prompts from files: which model answered what how well, origins, and what is left out together."""

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from classifier.labels import read_labels
from classifier.names import canonical
from classifier.prompt_lines import PromptFileError

Matrix = NDArray[np.float64]

# Benchmarks of one origin are left out together: MATH problems in one file reveal too much about those in another.
FAMILIES: dict[str, tuple[str, ...]] = {
    "mmlu-pro": ("mmlu-pro-stemez", "mmlu-pro-theoremQA", "mmlu-pro-scibench"),
    "math": ("zeroeval-math-l5", "llmrouter-math"),
    "code": ("llmrouter-mbpp", "llmrouter-human_eval", "zeroeval-crux"),
    "open-qa": ("llmrouter-natural_qa", "llmrouter-trivia_qa"),
}
# Models whose scores reflect how a grader parsed their format, not how hard the prompt was.
FORMAT_FAILURES = ("llama-3-chatqa-1.5-70b", "llama-3-chatqa-1.5-8b")
SEED_SOURCE = "breakeven-seeds"
# Scored in the benchmark, never learnt from.
NEVER_FITTED: dict[str, str] = {
    "llmrouter-gsm8k": "GSM8K is held out whole, whichever of its splits these 500 questions are from",
    "llmrouter-mbpp": "526 different problems, of which MBPP has 474 outside its test split: some are test problems",
}


class CorpusError(Exception):
    """A training file cannot be used; the message names the file, the line and what is wrong."""


@dataclass(frozen=True, slots=True)
class Corpus:
    """`scores` and `output_tokens` are prompts by models, NaN if unknown; targets are centred within `units`."""

    prompts: Sequence[str]
    sources: Sequence[str]
    units: Sequence[str]
    families: Sequence[str]
    collections: Sequence[str]
    models: Sequence[str]
    scores: Matrix
    output_tokens: Matrix
    files: Sequence[dict[str, Any]]


def family_of(source: str) -> str:
    return next((family for family, members in FAMILIES.items() if source in members), source)


def load_corpus(folder: Path, *, with_never_fitted: bool = False) -> Corpus:
    """All *.jsonl files of the folder, by name. Raises CorpusError if there are none or a line is malformed."""
    paths = sorted(folder.glob("*.jsonl"))
    if not paths:
        raise CorpusError(f"{folder} holds no .jsonl file of graded prompts")
    rows: list[dict[str, Any]] = []
    files: list[dict[str, Any]] = []
    for path in paths:
        found = [row for row in read_rows(path) if with_never_fitted or row["source"] not in NEVER_FITTED]
        rows += [{"file": path.stem, **row} for row in found]
        files.append(
            {
                "file": path.name,
                "prompts": len(found),
                "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
                "licences": sorted({str(row.get("license", "not stated")) for row in found}),
                "sources": sorted({str(row["source"]) for row in found}),
            }
        )
    return _assemble(rows, files)


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The labelled lines of one file. Raises CorpusError naming the line."""
    try:
        return [row for _, row in read_labels(path)]
    except PromptFileError as error:
        raise CorpusError(str(error)) from error


def difficulty_targets(corpus: Corpus) -> Matrix:
    """Failure plus what a strong model gains over a middling one, each centred within the prompt's unit; hard is
    positive.

    Failure alone also counts what no model can fix (a wrong key, a grader that misreads); the gap alone is noisy.
    """
    models = _trusted(corpus)
    scores = corpus.scores[:, models].copy()
    gap = np.zeros(len(scores))
    names = np.array(corpus.collections)
    for collection in sorted(set(corpus.collections)):
        rows = names == collection
        gap[rows] = quality_gap(corpus.scores[np.ix_(rows, models)])
    units = np.array(corpus.units)
    for unit in sorted(set(corpus.units)):
        rows = units == unit
        known = ~np.isnan(scores[rows]).all(axis=0)
        block = scores[np.ix_(rows, known)]
        scores[np.ix_(rows, known)] = block - np.nanmean(block, axis=0)
        gap[rows] -= gap[rows].mean()
    return gap - mean_known(scores)


def quality_gap(scores: Matrix) -> Matrix:
    """Mean of the best quarter of models minus the mean of those between the best 40 % and 80 %."""
    strong, middle = strong_and_middle(scores)
    return mean_known(scores[:, strong]) - mean_known(scores[:, middle])


def strong_and_middle(scores: Matrix, models: Sequence[str] = ()) -> tuple[list[int], list[int]]:
    """Columns of the best quarter, and of those between 40 % and 80 %, among models that answered most prompts."""
    untrusted = [number for number, name in enumerate(models) if name in FORMAT_FAILURES]
    answered = np.isfinite(scores).mean(axis=0) > 0.6
    answered[untrusted] = False
    known = np.flatnonzero(answered)
    order = known[np.argsort(-np.nanmean(scores[:, known], axis=0), kind="stable")].tolist()
    size = len(order)
    return order[: max(1, round(size * 0.25))], order[round(size * 0.4) : max(round(size * 0.8), round(size * 0.4) + 1)]


def failure_shares(corpus: Corpus) -> Matrix:
    """Share of models that failed on each prompt, in [0, 1], uncentred."""
    return 1.0 - mean_known(corpus.scores[:, _trusted(corpus)])


def _trusted(corpus: Corpus) -> list[int]:
    return [number for number, name in enumerate(corpus.models) if name not in FORMAT_FAILURES]


def mean_known(scores: Matrix) -> Matrix:
    """Mean over each row's known scores; 0 if there are none."""
    known = ~np.isnan(scores)
    return np.where(known, scores, 0.0).sum(axis=1) / np.maximum(known.sum(axis=1), 1)


def _assemble(rows: Sequence[dict[str, Any]], files: Sequence[dict[str, Any]]) -> Corpus:
    models = sorted({canonical(name) for row in rows for name in row["scores"]})
    column = {name: number for number, name in enumerate(models)}
    sources = [str(row["source"]) for row in rows]
    return Corpus(
        prompts=[row["prompt"] for row in rows],
        sources=sources,
        units=[_unit(row) for row in rows],
        families=[family_of(source) for source in sources],
        collections=[row["file"] for row in rows],
        models=models,
        scores=_matrix((row["scores"] for row in rows), column, len(rows)),
        output_tokens=_matrix((row.get("out_tokens") or {} for row in rows), column, len(rows)),
        files=files,
    )


def _unit(row: dict[str, Any]) -> str:
    """The source, or its category if the source combines categories of unequal difficulty."""
    family = family_of(str(row["source"]))
    category = row.get("category")
    return f"{family}/{category}" if category else str(row["source"])


def _matrix(cells: Iterable[dict[str, Any]], column: dict[str, int], size: int) -> Matrix:
    """A model with two spellings in one row gets the mean of both."""
    total = np.zeros((size, len(column)))
    count = np.zeros((size, len(column)))
    for number, row in enumerate(cells):
        for name, value in row.items():
            if isinstance(value, (int, float)) and not math.isnan(value) and canonical(name) in column:
                total[number, column[canonical(name)]] += value
                count[number, column[canonical(name)]] += 1
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)
