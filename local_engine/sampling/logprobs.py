"""Reported token probabilities: values only, no torch, no wire format."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Natural log-probabilities before temperature: of one token, and of the most likely ones at its position.

    `rank` is 1 for the most likely token; None for drawn tokens, whose rank is never reported.
    """

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...]
    rank: int | None = None
