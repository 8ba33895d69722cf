"""A file of prompts through the classifier of the data path: JSON lines in, JSON lines out, in the same order."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from classifier.item_response import ItemResponseClassifier
from classifier.names import canonical
from classifier.protocol import Classification, Conversation


class PromptFileError(Exception):
    """A line of the prompt file cannot be used; the message names the file and the line."""


def classify_file(
    source: Path, out: Path, classifier: ItemResponseClassifier, *, pair: tuple[str, str] | None = None
) -> int:
    """Write one line per prompt and return how many; raises PromptFileError. `pair` adds the expected quality gap."""
    is_adapted = pair is not None and all(canonical(name) in classifier.adapted_to for name in pair)
    count = 0
    with out.open("w", encoding="utf-8") as sink:
        for row in read_prompts(source):
            answer = classifier.classify(Conversation(row["prompt"], system=str(row.get("system") or "")))
            sink.write(json.dumps({"id": row.get("id"), **as_json(answer, pair, is_adapted=is_adapted)}) + "\n")
            count += 1
    return count


def as_json(answer: Classification, pair: tuple[str, str] | None, *, is_adapted: bool = False) -> dict[str, Any]:
    """The wire form of a classification; `route_score` ranks prompts by what the strong model is expected to add.

    Without labels of both models it is the difficulty: gaps between untrained curves are no better than it.
    """
    found: dict[str, Any] = {
        "difficulty": answer.difficulty,
        "uncertainty": answer.uncertainty,
        "quality": {name: quality.mean for name, quality in answer.quality.items()},
        "deviation": {name: quality.deviation for name, quality in answer.quality.items()},
        "output_tokens": dict(answer.output_tokens),
    }
    if pair:
        strong, weak = (answer.quality[name].mean for name in pair)
        found["quality_gap"] = strong - weak
        found["route_score"] = strong - weak if is_adapted else answer.difficulty
    return found


def read_prompts(source: Path) -> Iterator[dict[str, Any]]:
    """Lines with a `prompt` string; empty lines are skipped."""
    with source.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError as error:
                raise PromptFileError(f"{source}:{number} is not JSON: {error}") from error
            if not isinstance(row, dict) or not isinstance(row.get("prompt"), str):
                raise PromptFileError(f"{source}:{number} needs a `prompt` string")
            yield row
