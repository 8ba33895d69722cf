"""What is told of a token's probability: values only, no torch, no wire."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Natural log-probabilities before temperature: of one token, and of the most likely ones in its place.

    `rank` is 1 for the likeliest token; None for a drawn token, whose rank nobody asks for.
    """

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...]
    rank: int | None = None
