"""The sliders of the break-even page as values: what each sends to the gateway, and its setting in words. Pure."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from dashboards import display

DAY_SECONDS = 86_400


@dataclass(frozen=True, slots=True)
class Lever:
    """`is_log`: the slider is logarithmic."""

    name: str
    label: str
    low: float
    high: float
    says: Callable[[float], str]
    is_log: bool = False
    step: float = 0.01

    def position(self, value: float) -> float:
        """The handle's position for a value, limited to its range."""
        kept = min(max(value, self.low), self.high)
        return math.log10(kept) if self.is_log else kept

    def value(self, position: float) -> float:
        """The value at a handle's position, rounded to three digits."""
        found = 10**position if self.is_log else position
        return float(f"{found:.3g}")

    def bounds(self) -> tuple[float, float]:
        return (math.log10(self.low), math.log10(self.high)) if self.is_log else (self.low, self.high)


def _times(value: float) -> str:
    return f"{value:g} ×"


def _change(value: float) -> str:
    if value == 1:
        return "as today"
    return f"{abs(100 * (value - 1)):.0f} % {'more' if value > 1 else 'less'}"


LEVERS = (
    Lever("gpu_hour_usd", "GPU price", 0.005, 50, lambda v: f"{display.rate(str(v))} / hour", is_log=True),
    Lever("replicas", "GPUs", 1, 16, lambda v: f"{v:.0f}", step=1),
    Lever("volume_factor", "Volume, against observed", 0.1, 1000, _times, is_log=True),
    Lever("hosted_price_factor", "Hosted prices, against today's", 0.1, 3, _change),
    Lever("fixed_usd_per_month", "Fixed cost", 0, 20_000, lambda v: f"{display.dollars(str(v))} / month", step=50),
    Lever("yearly_price_factor", "Hosted prices in a year", 0.1, 1.5, _change),
    Lever("yearly_volume_factor", "Volume in a year (growth)", 0.5, 5, _times),
)
UTILISATION = Lever("utilisation", "Utilisation: load of the GPUs' capacity", 0.001, 10, display.share, is_log=True)
"""Not sent to the gateway: it is another way to state the volume, and moves that lever."""


def utilisation_at(volume_factor: float, replicas: float, observed: Mapping[str, float]) -> float:
    """The whole load as a share of what the GPUs could serve if it arrived evenly."""
    busy = observed["requests_per_day"] * observed["gpu_seconds_per_request"]
    return volume_factor * busy / (DAY_SECONDS * replicas)


def volume_at(utilisation: float, replicas: float, observed: Mapping[str, float]) -> float:
    """The inverse."""
    return utilisation / utilisation_at(1.0, replicas, observed)
