"""What is measured, one set of sizes for every contender, and the protocol of a contender."""

from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

Measure = Literal["prefill", "decode", "concurrent", "served", "warm_speedup", "grounded", "grounded_drafted"]
FIRST_ORDINARY_TOKEN = 1000
VOCABULARY = 49_152
SEQUENCES = 8


@dataclass(frozen=True, slots=True)
class Sizes:
    """Tokens of a prompt and of an answer; compute threads."""

    prompt: int = 512
    output: int = 64
    threads: int = 2


class Contender(Protocol):
    """One engine with one weight format."""

    @property
    def name(self) -> str: ...

    @property
    def measures(self) -> tuple[Measure, ...]: ...

    def measure(self, what: Measure) -> float:
        """Tokens per second; for `warm_speedup`, cold over warm time to first token."""
        ...


def random_prompt(seed: int, tokens: int) -> list[int]:
    """Random token ids; prompts of different seeds share no prefix."""
    return [int(i) for i in np.random.default_rng(seed).integers(FIRST_ORDINARY_TOKEN, VOCABULARY, tokens)]
