"""Difficulty as judged by the author before any data: prompts and topics on the scale of judgement/README.md."""

import hashlib
from collections.abc import Mapping
from importlib import resources

EVERYDAY = "everyday"
KINDS = (EVERYDAY, "exams", "word_problems", "mathematics", "code")
TOPICS = "topics"


def load_seeds() -> list[tuple[float, str]]:
    """(share of models expected to fail, prompt), kind by kind."""
    return [row for kind in KINDS for row in load_kind(kind)]


def seed_kinds() -> list[str]:
    """The kind of every seed, in load_seeds' order."""
    return [kind for kind in KINDS for _ in load_kind(kind)]


def load_topics() -> list[tuple[float, str]]:
    """(share of models expected to fail, words of one topic): subject matter without any form."""
    return load_kind(TOPICS)


def load_kind(kind: str) -> list[tuple[float, str]]:
    """The rows of one file of judgement/."""
    pairs = (line.split("\t", 1) for line in _read(kind).splitlines())
    return [(float(level), prompt.replace("\\n", "\n")) for level, prompt in pairs]


def judgement_hashes() -> Mapping[str, str]:
    """SHA-256 of every file of judgement/, for the artefact's provenance."""
    return {f"{kind}.tsv": hashlib.sha256(_read(kind).encode()).hexdigest() for kind in (*KINDS, TOPICS)}


def _read(kind: str) -> str:
    return resources.files("classifier").joinpath("judgement", f"{kind}.tsv").read_text(encoding="utf-8")
