"""Normalises model names as people write them, so that the same model is recognised everywhere."""

import re
from functools import lru_cache

REMEMBERED = 10_000
"""Each model of a catalogue is compared with every trained head whenever rules change, while requests wait."""

_PROVIDER = re.compile(r"^.*/")
_HOST = re.compile(r"@.*$")
_VENDOR = re.compile(
    r"^(meta|mistralai|google|openai|anthropic|deepseek-ai|qwen)[-/](?=llama|mi|gemma|gpt|claude|deepseek|qwen)"
)
_GLUED = re.compile(r"^(llama|gemma|phi|mistral)(?=\d)")
_DATE = re.compile(r"-(?:20\d{2}-?\d{2}-?\d{2}|\d{8}|latest|preview)$")
_SIZE = re.compile(r"(?<![\w.])(?:(\d+)x)?(\d+(?:\.\d+)?)\s?(b|m)(?![a-z])")


@lru_cache(REMEMBERED)
def canonical(name: str) -> str:
    """Lower case, without provider, host or vendor prefix, `3_1` as `3.1`; dates are kept, as they are different
    models."""
    short = _HOST.sub("", _PROVIDER.sub("", name.strip().lower()))
    short = re.sub(r"[_: ]", "-", re.sub(r"(?<=\d)_(?=\d)", ".", short))
    return _GLUED.sub(r"\1-", _VENDOR.sub("", short))


@lru_cache(REMEMBERED)
def undated(name: str) -> str:
    """The canonical name without a trailing release date."""
    return _DATE.sub("", canonical(name))


def billions_of_parameters(name: str) -> float | None:
    """The size stated in a name (`8b`, `135m`, `8x7b`), in 1e9 parameters; None if there is none."""
    found = _SIZE.search(canonical(name))
    if not found:
        return None
    size = float(found[2]) * (float(found[1]) if found[1] else 1.0)
    return size / 1000.0 if found[3] == "m" else size
