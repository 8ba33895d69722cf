"""A Bayesian linear correction of one model's predicted quality, learnt from outcomes; starts at no correction."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Residual:
    """Gaussian posterior over the weights of `outcome - prior = features · weights + noise`.

    `precision` is in units of the noise's; `pull` is precision times the posterior mean. `updates` counts outcomes.
    Immutable: an update returns a new value, so readers never see half of one.
    """

    precision: Array
    pull: Array
    noise_variance: float
    prior_precision: float
    updates: int = 0

    def update(self, features: Array, prior: float, outcome: float, *, weight: float = 1.0) -> "Residual":
        """The posterior after one outcome in [0, 1]; `weight` discounts weak evidence such as a retry."""
        _check(features, len(self.pull))
        scale = weight / self.noise_variance
        return Residual(
            self.precision + scale * np.outer(features, features),
            self.pull + scale * features * (outcome - prior),
            self.noise_variance,
            self.prior_precision,
            self.updates + 1,
        )

    def forget(self, share: float) -> "Residual":
        """Let go of that share of the evidence, towards the prior: models and traffic change."""
        prior = np.eye(len(self.pull)) * self.prior_precision
        return replace(
            self, precision=self.precision + share * (prior - self.precision), pull=self.pull * (1.0 - share)
        )

    def predict(self, features: Array, prior: float) -> tuple[float, float]:
        """Corrected quality in [0, 1] and the standard deviation of the correction."""
        _check(features, len(self.pull))
        covariance_features = np.linalg.solve(self.precision, features)
        mean = float(self.pull @ covariance_features)
        deviation = float(np.sqrt(max(features @ covariance_features, 0.0)))
        return min(max(prior + mean, 0.0), 1.0), deviation


def start_residual(size: int, *, prior_deviation: float = 0.1, noise_variance: float = 0.2) -> Residual:
    """No correction yet: weights of mean zero and that standard deviation each."""
    precision = 1.0 / prior_deviation**2
    return Residual(np.eye(size) * precision, np.zeros(size), noise_variance, precision)


def _check(features: Array, size: int) -> None:
    if features.shape != (size,) or not np.isfinite(features).all():
        raise ValueError(f"a residual of {size} weights needs {size} finite features, not {features.shape}")
