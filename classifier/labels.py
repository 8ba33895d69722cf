"""Graded prompts from a file: each line's prompt with the scores of every model, as people write them."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from classifier.names import canonical
from classifier.prompt_lines import PromptFileError, read_prompt_lines


def read_labels(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The number of each line with its object, one at a time. Raises PromptFileError for one without `scores`."""
    for number, row in read_prompt_lines(path):
        if not isinstance(row.get("scores"), dict):
            raise PromptFileError(f"{path}:{number} needs a `scores` object of model to 0..1")
        yield number, {"source": path.stem, **row}


def known_scores(scores: dict[str, Any], where: str) -> dict[str, float]:
    """By canonical name; null and NaN are not known, true is 1. Two spellings of one model keep their mean. Raises
    PromptFileError for what is no score."""
    found: dict[str, list[float]] = {}
    for name, value in scores.items():
        if value is None or (isinstance(value, float) and math.isnan(value)):
            continue
        if not isinstance(value, (int, float)) or not 0.0 <= value <= 1.0:
            raise PromptFileError(f"{where} has a score of {json.dumps(value)}; scores are numbers between 0 and 1")
        found.setdefault(canonical(name), []).append(float(value))
    return {name: sum(values) / len(values) for name, values in found.items()}
