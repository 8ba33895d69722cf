"""Tokens per second against concurrency, from a measured sweep. Knows nothing of money.

A decode step over N sequences lasts t(N) = a + b·N seconds, so N sequences get X(N) = N / t(N) tokens per second
and no concurrency gets more than 1/b. N/X is linear in N, which makes the fit an ordinary regression.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gateway.economics.errors import EconomicsError

MINIMUM_POINTS = 3
LARGEST_RELATIVE_RESIDUAL = 0.10


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """One step of a load sweep. `decode_tokens_per_second` is the total of all sequences."""

    concurrency: int
    decode_tokens_per_second: float

    @property
    def step_seconds(self) -> float:
        return self.concurrency / self.decode_tokens_per_second


@dataclass(frozen=True, slots=True)
class ThroughputCurve:
    """A fitted sweep. If the line is off by more than 10 % at any point, the measured points are interpolated."""

    points: tuple[SweepPoint, ...]
    step_base_seconds: float
    step_seconds_per_sequence: float
    largest_relative_residual: float
    is_interpolated: bool

    @property
    def largest_concurrency(self) -> int:
        return self.points[-1].concurrency

    @property
    def ceiling_tokens_per_second(self) -> float | None:
        """1/b, which no concurrency reaches; None when the line does not describe the engine."""
        return None if self.is_interpolated else 1.0 / self.step_seconds_per_sequence

    def step_seconds(self, concurrency: float) -> float:
        """Seconds of one decode step, which is also the time per output token. Raises EconomicsError where none was
        measured."""
        if not 0 < concurrency <= self.largest_concurrency:
            raise EconomicsError(
                f"concurrency {concurrency:g} is outside 1..{self.largest_concurrency}, which is what was measured"
            )
        if not self.is_interpolated:
            return self.step_base_seconds + self.step_seconds_per_sequence * concurrency
        # Linear between points, never falling: a dip in a sweep is noise, and the running maximum is cautious.
        rising = np.maximum.accumulate(np.array([point.step_seconds for point in self.points], dtype=np.float64))
        return float(np.interp(concurrency, [point.concurrency for point in self.points], rising))

    def tokens_per_second(self, concurrency: float) -> float:
        """Decode throughput of all sequences together. Raises EconomicsError as `step_seconds` does."""
        return concurrency / self.step_seconds(concurrency)


def fit_throughput_curve(points: Sequence[SweepPoint]) -> ThroughputCurve:
    """Regress N/X on N over at least three distinct concurrencies. Raises EconomicsError for fewer."""
    ordered = tuple(sorted(points, key=lambda point: point.concurrency))
    concurrencies = np.array([point.concurrency for point in ordered], dtype=np.float64)
    if len(set(concurrencies.tolist())) < MINIMUM_POINTS:
        raise EconomicsError(f"a throughput curve needs {MINIMUM_POINTS} different concurrencies, not {len(ordered)}")
    if min(point.decode_tokens_per_second for point in ordered) <= 0 or ordered[0].concurrency < 1:
        raise EconomicsError("every sweep point needs a concurrency of at least 1 and a positive throughput")
    steps = np.array([point.step_seconds for point in ordered], dtype=np.float64)
    slope, base = (float(value) for value in np.polyfit(concurrencies, steps, 1))
    residual = float(np.max(np.abs(base + slope * concurrencies - steps) / steps))
    is_line = residual <= LARGEST_RELATIVE_RESIDUAL and base >= -1e-12 and slope > 0
    return ThroughputCurve(ordered, base, slope, residual, not is_line)


def best_concurrency(curve: ThroughputCurve, *, time_per_output_token_seconds: float) -> int | None:
    """N*: the largest concurrency in the measured range that meets the target; None if not even one sequence does."""
    # A value of exactly the target must not fail by rounding error.
    most_seconds = time_per_output_token_seconds * (1 + 1e-9)
    downwards = range(curve.largest_concurrency, 0, -1)
    return next((concurrency for concurrency in downwards if curve.step_seconds(concurrency) <= most_seconds), None)
