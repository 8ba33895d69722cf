"""Hand-written prompts with the difficulty that their author gave them: a prior where no graded prompt exists."""

from importlib import resources


def load_seeds() -> list[tuple[float, str]]:
    """(share of models expected to fail, prompt), from seeds.tsv."""
    text = resources.files("classifier").joinpath("seeds.tsv").read_text(encoding="utf-8")
    pairs = (line.split("\t", 1) for line in text.splitlines())
    return [(float(level), prompt.replace("\\n", "\n")) for level, prompt in pairs]
