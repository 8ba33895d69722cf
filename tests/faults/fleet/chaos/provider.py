"""What the provider does with each request: mostly it answers, now and then it fails in one of ten ways."""

import random
from collections.abc import Iterator

from backends.scripted import Fault, Outcome
from backends.usage import Usage

BROKEN: tuple[Fault, ...] = ("reset", "truncated", "error_event", "garbage")
REFUSED: tuple[Fault, ...] = ("unavailable", "overloaded", "rate_limited")
WELL = 0.8
MOST_PIECES = 12


def outcomes(chance: random.Random, count: int) -> Iterator[Outcome]:
    for _ in range(count):
        pieces = chance.randrange(1, MOST_PIECES + 1)
        input_tokens = chance.randrange(10, 30)
        fault = None if chance.random() < WELL else chance.choice(BROKEN + REFUSED)
        yield Outcome(
            pieces=("word ",) * pieces,
            usage=Usage(
                input_tokens=input_tokens,
                cached_input_tokens=chance.randrange(input_tokens),
                output_tokens=chance.randrange(pieces, 16),
            ),
            fault=fault,
            fault_after_pieces=chance.randrange(pieces) if fault in BROKEN else 0,
            retry_after_seconds=0.1 if fault == "rate_limited" else None,
            first_piece_delay_seconds=chance.random() * 0.05,
            piece_delay_seconds=chance.random() * 0.02,
        )
