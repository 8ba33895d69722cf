"""Hourly load in units of full replicas, and how much of it each further replica of a fleet would take.

Within a bin the load is assumed steady; the bins stay in time order, because scaling up has a cost.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Load:
    """One row per bin, in time order, including bins without traffic: idle nights are part of the month."""

    hours: FloatArray
    requests_per_second: FloatArray
    gpu_seconds_per_request: FloatArray
    value_usd_per_request: FloatArray
    """What the hosted alternative charges per request minus what a local one costs beyond the rent (C_api − c_var)."""

    @property
    def busy_replicas(self) -> FloatArray:
        """L/μ: how many full replicas the bin's requests would occupy."""
        return self.requests_per_second * self.gpu_seconds_per_request

    @property
    def total_hours(self) -> float:
        return float(self.hours.sum())

    @property
    def value_usd(self) -> float:
        """The value of the whole load: what could be saved if all of it were served."""
        return float(self.value_usd_by_bin.sum())

    @property
    def value_usd_by_bin(self) -> FloatArray:
        return self.hours * 3600.0 * self.requests_per_second * self.value_usd_per_request

    @property
    def peak_replicas(self) -> float:
        return float(self.busy_replicas.max(initial=0.0))

    @property
    def peak_to_mean(self) -> float | None:
        """None without traffic."""
        mean = float((self.busy_replicas * self.hours).sum()) / self.total_hours if self.total_hours else 0.0
        return self.peak_replicas / mean if mean > 0 else None

    def scaled(self, factor: float) -> "Load":
        """The same shape and mix at `factor` times the volume."""
        return Load(
            self.hours, self.requests_per_second * factor, self.gpu_seconds_per_request, self.value_usd_per_request
        )

    def value_usd_per_layer_hour(self, layer: int) -> FloatArray:
        """Dollars per hour that replica number `layer` (counted from 1) saves in each bin."""
        busy = self.busy_replicas
        taken = np.clip(busy - (layer - 1), 0.0, 1.0)
        value_per_hour = 3600.0 * self.requests_per_second * self.value_usd_per_request
        return np.divide(value_per_hour * taken, busy, out=np.zeros_like(busy), where=busy > 0)

    def layer_value_usd(self, layer: int) -> float:
        """B_k over all bins. Never rises with k: a later replica gets only what the earlier ones left."""
        return float((self.hours * self.value_usd_per_layer_hour(layer)).sum())
