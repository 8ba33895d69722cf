"""Probabilities as logits and back. Pure."""

import math


def sigmoid(logit: float) -> float:
    return 1.0 / (1.0 + math.exp(-logit))


def logit(share: float, least: float = 1e-4, most: float = 1.0 - 1e-4) -> float:
    """Of a share within bounds, since those of 0 and 1 are infinite."""
    share = min(max(share, least), most)
    return math.log(share / (1.0 - share))
