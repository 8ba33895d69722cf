"""How good a router is: RouteLLM's CPT and APGR exactly, tie-aware APGR, calibration, RouterArena's score. Pure."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class RouteCurve:
    """Quality against the share of calls that went to the strong model, both ascending in that share."""

    strong_share: Array
    quality: Array


def route_curve(scores: Array, strong: Array, weak: Array) -> RouteCurve:
    """RouteLLM's curve: strong when score >= threshold, at the 11 edges of 10 quantile bins, the last one strict."""
    edges = np.unique(np.quantile(scores, np.linspace(0.0, 1.0, 11)))
    shares: list[float] = []
    qualities: list[float] = []
    for number, edge in enumerate(edges):
        routed = scores > edge if number == len(edges) - 1 else scores >= edge
        shares.append(float(routed.mean()))
        qualities.append(float(np.where(routed, strong, weak).mean()))
    order = np.argsort(shares, kind="stable")
    return RouteCurve(np.array(shares)[order], np.array(qualities)[order])


def apgr(scores: Array, strong: Array, weak: Array) -> float:
    """Average performance gap recovered: (AUC - AUC_weak) / (AUC_strong - AUC_weak); NaN if there is no gap."""
    curve = route_curve(scores, strong, weak)
    floor, ceiling = float(weak.mean()), float(strong.mean())
    if math.isclose(floor, ceiling, abs_tol=1e-12):
        return math.nan
    area = float(np.trapezoid(curve.quality, curve.strong_share))
    span = float(curve.strong_share[-1] - curve.strong_share[0])
    return (area - floor * span) / ((ceiling - floor) * span) if span else math.nan


def cpt(scores: Array, strong: Array, weak: Array, recovered: float) -> float:
    """Share of calls to the strong model, in [0, 1], at which the share `recovered` of the quality gap is first
    reached."""
    curve = route_curve(scores, strong, weak)
    floor, ceiling = float(weak.mean()), float(strong.mean())
    target = floor + recovered * (ceiling - floor)
    return float(np.interp(target, curve.quality, curve.strong_share))


def tie_aware_apgr(scores: Array, gap: Array) -> float:
    """APGR over every threshold, equal scores in random order: 0.5 is random, 1 sends all the gap first."""
    total = float(gap.sum())
    if abs(total) < 1e-12:
        return math.nan
    share_before = (_average_ranks(-scores) - 0.5) / len(scores)
    return float((gap * (1.0 - share_before)).sum() / total)


def bootstrap_interval(scores: Array, gap: Array) -> tuple[float, float]:
    """The central 95 % of tie-aware APGR over 200 resamples of the prompts; deterministic."""
    draw = np.random.default_rng(0)
    size = len(scores)
    picks = (draw.integers(0, size, size) for _ in range(200))
    values = [tie_aware_apgr(scores[pick], gap[pick]) for pick in picks]
    low, high = np.nanquantile(values, [0.025, 0.975])
    return float(low), float(high)


def brier(predicted: Array, outcome: Array) -> float:
    """Mean squared error of a probability."""
    return float(np.mean((predicted - outcome) ** 2))


def calibration_error(predicted: Array, outcome: Array, *, bins: int = 10) -> float:
    """Expected calibration error over equally filled bins."""
    order = np.argsort(predicted, kind="stable")
    parts = [part for part in np.array_split(order, bins) if len(part)]
    return float(sum(len(part) * abs(predicted[part].mean() - outcome[part].mean()) for part in parts) / len(predicted))


def _average_ranks(values: Array) -> Array:
    """Ranks from 1; ties share their mean rank."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2.0)[inverse]
