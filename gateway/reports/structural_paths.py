"""Simulated days to come of a level, a damped slope and weekdays, as uncertain as the days seen leave all of them.

How far the level wanders beside the noise of single days is not fitted but weighed: each of RATIOS draws as many of the
paths as its likelihood says, and the noise itself is drawn too. One best value made intervals too narrow, since of few
days the best guess is often that the level does not move. Imports statsmodels; randomness is passed in.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from statsmodels.tsa.statespace.structural import UnobservedComponents

FloatArray = NDArray[np.float64]

WEEK: Final = 7
SLOPE_LOST: Final = 3.0
"""How often a slope is lost, by a share a day, within as many days as were seen. Growth that goes on for ever makes of
a first month's $10 to $40 a day billions within the year; damped it lasts as long as there is reason to think so
(Gardner and McKenzie, 1985). Chosen by made series of seven kinds: docs/decisions/damped-forecasts.md."""
RATIOS: Final = (0.0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.0)
"""Of a day's step of the level to the noise of a day, as standard deviations."""
SMALLEST_SQUARES: Final = 1e-12
"""Of series without noise."""


@dataclass(frozen=True, slots=True)
class _Weighed:
    """What the days seen say under one ratio, in units of their noise: where they end, and how likely they are."""

    ratio: float
    state: FloatArray
    covariance: FloatArray
    squares: float
    count: int
    log_likelihood: float


def simulate(seen: FloatArray, days: int, paths: int, *, is_weekly: bool, generator: np.random.Generator) -> FloatArray:
    """Of shape (days, paths). `seen` is of the order of 1; `is_weekly` needs more than a week of it."""
    model = UnobservedComponents(
        seen,
        irregular=True,
        level=True,
        stochastic_level=True,
        trend=is_weekly,
        seasonal=WEEK if is_weekly else None,
        stochastic_seasonal=False,
    )
    weighed = [_weigh(model, ratio) for ratio in RATIOS]
    likelihood = np.array([one.log_likelihood for one in weighed])
    weights = np.exp(likelihood - likelihood.max())
    drawn = generator.multinomial(paths, weights / weights.sum())
    transition = np.array(model.ssm["transition"], dtype=np.float64)
    if is_weekly:
        slope = model.state_names.index("trend")
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


def _weigh(model: UnobservedComponents, ratio: float) -> _Weighed:
    """The likelihood with the size of the noise integrated out; the first days only find the state."""
    filtered = model.filter([1.0, ratio * ratio], return_ssm=True)
    first = model.loglikelihood_burn
    errors, variances = filtered.forecasts_error[0, first:], filtered.forecasts_error_cov[0, 0, first:]
    squares = max(float((errors * errors / variances).sum()), SMALLEST_SQUARES)
    return _Weighed(
        ratio=ratio,
        state=np.array(filtered.filtered_state[:, -1], dtype=np.float64),
        covariance=np.array(filtered.filtered_state_cov[:, :, -1], dtype=np.float64),
        squares=squares,
        count=len(errors),
        log_likelihood=-0.5 * (float(np.log(variances).sum()) + len(errors) * float(np.log(squares))),
    )


def _start(one: _Weighed, paths: int, generator: np.random.Generator) -> tuple[FloatArray, FloatArray, FloatArray]:
    """States of shape (states, paths) at the end of the days seen; each path's noise and steps of its level."""
    noise = np.sqrt(one.squares / generator.chisquare(one.count, paths))
    values, vectors = np.linalg.eigh(one.covariance)
    spread = (vectors * np.sqrt(np.maximum(values, 0.0))) @ generator.normal(size=(len(values), paths))
    return one.state[:, None] + spread * noise, noise, one.ratio * noise
