"""The cut-off with the fewest strong calls that keeps a share of always-strong quality, with a bootstrap guard.
Pure."""

from dataclasses import dataclass

import numpy as np

from classifier.metrics import Array

ROUNDS = 200


@dataclass(frozen=True, slots=True)
class Cut:
    """Strong if the score is at least `threshold`; shares in [0, 1], quality relative to always-strong."""

    threshold: float
    strong_share: float
    kept_quality: float
    kept_quality_low: float


def choose_cut(scores: Array, strong: Array, weak: Array, *, target: float) -> Cut:
    """The highest threshold whose kept quality is at least the target in 95 % of resamples.

    Raises ValueError for a target outside (0, 1], fewer than 30 prompts, or a strong model without any score above 0.
    Always-strong meets every target.
    """
    if not 0.0 < target <= 1.0:
        raise ValueError(f"a quality target of {target} is not in (0, 1]")
    if len(scores) < 30:
        raise ValueError(f"{len(scores)} graded prompts are too few to calibrate on: at least 30 are needed")
    if not strong.any():
        raise ValueError("the strong model's scores are all 0: there is no quality to keep a share of")
    order = np.argsort(-scores, kind="stable")
    ends = np.r_[np.flatnonzero(np.diff(scores[order])), len(scores) - 1]  # equal scores are routed alike
    draw = np.random.default_rng(0)
    picks = draw.integers(0, len(scores), (ROUNDS, len(scores)))
    for end in [-1, *ends.tolist()]:
        routed = np.zeros(len(scores), bool)
        routed[order[: end + 1]] = True
        earned = np.where(routed, strong, weak)
        kept = earned[picks].mean(axis=1) / np.maximum(strong[picks].mean(axis=1), 1e-9)
        low = float(np.quantile(kept, 0.05))
        if low >= target or end == len(scores) - 1:
            threshold = float(scores[order[end]]) if end >= 0 else float(np.nextafter(scores.max(), np.inf))
            return Cut(threshold, float(routed.mean()), float(earned.mean() / strong.mean()), low)
    raise AssertionError("always-strong ends the search")


def cost_quality_curve(scores: Array, strong: Array, weak: Array) -> list[tuple[float, float]]:
    """(share of strong calls, mean quality) from always-weak to always-strong."""
    order = np.argsort(-scores, kind="stable")
    curve: list[tuple[float, float]] = []
    for share in np.linspace(0.0, 1.0, 21).tolist():
        count = round(share * len(scores))
        curve.append((share, float((strong[order[:count]].sum() + weak[order[count:]].sum()) / len(scores))))
    return curve
