"""Classifies a file of prompts with the data path's classifier: JSON lines in, JSON lines out, in the same order."""

import json
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from classifier.item_response import ItemResponseClassifier
from classifier.names import canonical
from classifier.prompt_lines import STANDARD, read_prompt_lines
from classifier.protocol import Classification, Conversation


def classify_file(
    source: Path, out: Path, classifier: ItemResponseClassifier, *, pair: tuple[str, str] | None = None
) -> int:
    """Writes one line per prompt and returns their number; raises PromptFileError. `pair` adds the expected quality
    gap.

    `out` is replaced only when complete: a bad line leaves the previous file, and `out` may be `source`.
    """
    is_adapted = pair is not None and all(canonical(name) in classifier.adapted_to for name in pair)
    count = 0
    with _appearing_whole(out) as sink:
        for _, row in read_prompt_lines(source):
            answer = classifier.classify(Conversation(row["prompt"], system=str(row.get("system") or "")))
            sink.write(json.dumps({"id": row.get("id"), **as_json(answer, pair, is_adapted=is_adapted)}) + "\n")
            count += 1
    return count


@contextmanager
def _appearing_whole(out: Path) -> Generator[TextIO]:
    """A file that takes its name when complete; devices and pipes are written to directly."""
    if out == STANDARD:
        yield sys.stdout
        sys.stdout.flush()
        return
    if out.exists() and not out.is_file():
        with out.open("w", encoding="utf-8") as sink:
            yield sink
        return
    out = out.resolve()
    unfinished = out.with_name(f"{out.name}.{os.getpid()}.part")
    try:
        with unfinished.open("w", encoding="utf-8") as sink:
            yield sink
        unfinished.replace(out)
    finally:
        unfinished.unlink(missing_ok=True)


def as_json(answer: Classification, pair: tuple[str, str] | None, *, is_adapted: bool = False) -> dict[str, Any]:
    """The wire form of a classification; `route_score` ranks prompts by what the strong model is expected to gain.

    Without labels for both models it is the difficulty: gaps between unadapted curves rank no better.
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
