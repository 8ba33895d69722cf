"""Reads graded prompts from a file: a prompt per line with each model's score, as people write them."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from classifier.names import canonical
from classifier.prompt_lines import PromptFileError, read_prompt_lines


def read_labels(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields line numbers and objects. Raises PromptFileError for a line without `scores`."""
    for number, row in read_prompt_lines(path):
        if not isinstance(row.get("scores"), dict):
            raise PromptFileError(f"{path}:{number} needs a `scores` object of model to 0..1")
        yield number, {"source": path.stem, **row}


def known_scores(scores: dict[str, Any], where: str) -> dict[str, float]:
    """Scores by canonical name; null and NaN are unknown, true is 1. Two spellings of one model are averaged. Raises
    PromptFileError for invalid scores."""
    found: dict[str, list[float]] = {}
    for name, value in scores.items():
        if value is None or (isinstance(value, float) and math.isnan(value)):
            continue
        if not isinstance(value, (int, float)) or not 0.0 <= value <= 1.0:
            raise PromptFileError(f"{where} has a score of {json.dumps(value)}; scores are numbers between 0 and 1")
        found.setdefault(canonical(name), []).append(float(value))
    return {name: sum(values) / len(values) for name, values in found.items()}
