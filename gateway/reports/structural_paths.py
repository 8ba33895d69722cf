"""Simulates future days with level, damped slope and weekday effects, including the uncertainty of all of them.

The ratio of level drift to daily noise is not fitted but averaged over: each of RATIOS contributes paths in proportion
to its likelihood, and the noise itself is drawn too. A single best value made intervals too narrow, because with few
days the best fit is often a constant level. Imports statsmodels; randomness is passed in.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from statsmodels.tsa.statespace.structural import UnobservedComponents

from gateway.reports.daily_costs import WEEK

FloatArray = NDArray[np.float64]

SLOPE_LOST: Final = 3.0
"""Damping of the slope: the daily decay times the number of days seen. Undamped growth turns a first month from $10 to
$40 a day into billions within the year; damped, it lasts about as long as the evidence for it (Gardner and McKenzie,
1985). Chosen on seven kinds of synthetic series: docs/decisions/damped-forecasts.md."""
SLOPE_PRIOR: Final = 0.02
"""How far a day's growth is expected to be from none before any day is seen: a standard deviation, as a share of a
typical day. A few expensive days at the end of the days seen are rarely growth: docs/decisions/damped-forecasts.md."""
RATIOS: Final = (0.0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.0)
"""Ratios of the level's daily step to the daily noise, as standard deviations."""
SMALLEST_SQUARES: Final = 1e-12
"""Lower bound, for series without noise."""


@dataclass(frozen=True, slots=True)
class _Weighed:
    """The fit for one ratio, in units of the noise: the final state, and the likelihood of the days seen."""

    ratio: float
    state: FloatArray
    covariance: FloatArray
    squares: float
    count: int
    log_variance: float

    @property
    def log_likelihood(self) -> float:
        return -0.5 * (self.log_variance + self.count * float(np.log(self.squares)))


def simulate(seen: FloatArray, days: int, paths: int, *, has_slope: bool, generator: np.random.Generator) -> FloatArray:
    """Paths of shape (days, paths). `seen` must be of the order of 1 and of two weeks or more."""
    model = UnobservedComponents(
        seen,
        irregular=True,
        level=True,
        stochastic_level=True,
        trend=has_slope,
        seasonal=WEEK,
        stochastic_seasonal=False,
    )
    slope = model.state_names.index("trend") if has_slope else None
    weighed = [_weigh(model, ratio, slope) for ratio in RATIOS]
    likelihood = np.array([one.log_likelihood for one in weighed])
    weights = np.exp(likelihood - likelihood.max())
    drawn = generator.multinomial(paths, weights / weights.sum())
    transition = np.array(model.ssm["transition"], dtype=np.float64)
    if slope is not None:
        transition[slope, slope] = 1.0 - SLOPE_LOST / len(seen)
    starts = [_start(one, count, generator) for one, count in zip(weighed, drawn, strict=True)]
    state = np.concatenate([start for start, _, _ in starts], axis=1)
    noise, steps = (np.concatenate([start[place] for start in starts]) for place in (1, 2))
    shown = np.array(model.ssm["design"], dtype=np.float64)[0]
    found = np.empty((days, paths))
    level = model.state_names.index("level")
    for day in range(days):
        state = transition @ state
        state[level] += generator.normal(size=paths) * steps
        found[day] = shown @ state + generator.normal(size=paths) * noise
    return found


def _weigh(model: UnobservedComponents, ratio: float, slope: int | None) -> _Weighed:
    """The likelihood with the noise scale integrated out; the first days only initialise the state."""
    filtered = model.filter([1.0, ratio * ratio], return_ssm=True)
    first = model.loglikelihood_burn
    errors, variances = filtered.forecasts_error[0, first:], filtered.forecasts_error_cov[0, 0, first:]
    squares = max(float((errors * errors / variances).sum()), SMALLEST_SQUARES)
    fit = _Weighed(
        ratio=ratio,
        state=np.array(filtered.filtered_state[:, -1], dtype=np.float64),
        covariance=np.array(filtered.filtered_state_cov[:, :, -1], dtype=np.float64),
        squares=squares,
        count=len(errors),
        log_variance=float(np.log(variances).sum()),
    )
    return fit if slope is None else _expecting_little_growth(fit, slope)


def _expecting_little_growth(fit: _Weighed, slope: int) -> _Weighed:
    """The fit as if no slope had been observed once, with an error of SLOPE_PRIOR. It may come last, as the slope is
    the same on all days seen."""
    variance = float(fit.covariance[slope, slope]) + SLOPE_PRIOR**2 * fit.count / fit.squares
    gain = fit.covariance[:, slope] / variance
    return _Weighed(
        ratio=fit.ratio,
        state=fit.state - gain * fit.state[slope],
        covariance=fit.covariance - gain[:, None] * fit.covariance[slope],
        squares=fit.squares + float(fit.state[slope]) ** 2 / variance,
        count=fit.count + 1,
        log_variance=fit.log_variance + float(np.log(variance)),
    )


def _start(one: _Weighed, paths: int, generator: np.random.Generator) -> tuple[FloatArray, FloatArray, FloatArray]:
    """States of shape (states, paths) after the days seen, and each path's noise and level step."""
    noise = np.sqrt(one.squares / generator.chisquare(one.count, paths))
    values, vectors = np.linalg.eigh(one.covariance)
    spread = (vectors * np.sqrt(np.maximum(values, 0.0))) @ generator.normal(size=(len(values), paths))
    return one.state[:, None] + spread * noise, noise, one.ratio * noise
