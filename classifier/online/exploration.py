"""Which model to try now and then, with the probability that it was tried: what off-policy evaluation needs."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Choice:
    """`propensity` is the probability with which this model was chosen, exploration included."""

    model: str
    propensity: float
    is_exploration: bool


@dataclass(frozen=True, slots=True)
class Explorer:
    """Epsilon-greedy over affordable candidates; exploration stops once its spend cap is used up."""

    share: float
    spend_cap_pico_usd: int

    def __post_init__(self) -> None:
        if not 0.0 <= self.share <= 0.2:
            raise ValueError(f"exploration share {self.share} is not between 0 and 0.2")

    def choose(
        self, preferred: str, extra_cost_pico_usd: Mapping[str, int], spent_pico_usd: int, draw: float
    ) -> Choice:
        """`extra_cost_pico_usd` of every candidate over the preferred one; `draw` is uniform in [0, 1)."""
        room = self.spend_cap_pico_usd - spent_pico_usd
        affordable = sorted(
            model for model, extra in extra_cost_pico_usd.items() if model != preferred and extra <= max(room, 0)
        )
        if not affordable or self.share == 0.0 or room <= 0:
            return Choice(preferred, 1.0, False)
        each = self.share / len(affordable)
        number = int(draw / each) if draw < self.share else len(affordable)
        if number < len(affordable):
            return Choice(affordable[number], each, True)
        return Choice(preferred, 1.0 - self.share, False)
