"""What its author holds to be hard, before any data: prompts and topics with a stated difficulty."""

from importlib import resources


def load_seeds() -> list[tuple[float, str]]:
    """(share of models expected to fail, prompt), from seeds.tsv."""
    return _load("seeds.tsv")


def load_topics() -> list[tuple[float, str]]:
    """(share of models expected to fail, words of one topic), from topics.tsv: what is asked about, in no form."""
    return _load("topics.tsv")


def _load(name: str) -> list[tuple[float, str]]:
    text = resources.files("classifier").joinpath(name).read_text(encoding="utf-8")
    pairs = (line.split("\t", 1) for line in text.splitlines())
    return [(float(level), prompt.replace("\\n", "\n")) for level, prompt in pairs]
