"""What a replay found: the same requests under both sets of rules, in dollars, quality and first tokens."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from gateway.economics.replay.log import LoggedRequest


@dataclass(slots=True)
class Side:
    """One of the two worlds, for the requests that both serve. Costs exclude GPU rent and the `unpriced` requests,
    whose cost is unknown in either world, so that both sums cover the same requests."""

    cost_pico_usd: int = 0
    unpriced: int = 0
    requests_by_model: dict[str, int] = field(default_factory=dict[str, int])
    quality_sum: float = 0.0
    quality_count: int = 0
    first_tokens: "array[float]" = field(default_factory=lambda: array("d"))

    def add(self, model: str, cost: int | None, quality: float | None, first_token: float | None) -> None:
        self.requests_by_model[model] = self.requests_by_model.get(model, 0) + 1
        if cost is None:
            self.unpriced += 1
        else:
            self.cost_pico_usd += cost
        if quality is not None:
            self.quality_sum += quality
            self.quality_count += 1
        if first_token is not None:
            self.first_tokens.append(first_token)

    @property
    def mean_quality(self) -> float | None:
        return self.quality_sum / self.quality_count if self.quality_count else None

    @property
    def time_to_first_token_p50_seconds(self) -> float | None:
        return float(np.quantile(self.first_tokens, 0.5)) if self.first_tokens else None


@dataclass(slots=True)
class Move:
    """Requests that moved to another model, and the change of their cost (negative: cheaper).

    The change excludes `unpriced` ones, whose cost before or after is unknown.
    """

    logged_model: str
    model: str
    requests: int = 0
    cost_change_pico_usd: int = 0
    unpriced: int = 0


@dataclass(slots=True)
class ReplayDiff:
    """Running sums. `refused` requests found no model under the new rules and are on neither side. The answers of
    `unverified` ones would be verified with unknown outcome: they count as passing.

    `refused_down` of the refused ones were refused only because models were down then. `failed` ones got no
    answer in the log, and others would be asked for it now. `cached_tokens` of the moved ones were read from a prompt
    cache and count as fresh; if cached at the new model, they would cost `cached_pico_usd` less.
    """

    requests: int = 0
    moved: int = 0
    refused: int = 0
    refused_down: int = 0
    failed: int = 0
    unverified: int = 0
    cached_tokens: int = 0
    cached_pico_usd: int = 0
    logged: Side = field(default_factory=Side)
    replayed: Side = field(default_factory=Side)
    by_models: dict[tuple[str, str], Move] = field(default_factory=dict[tuple[str, str], Move])

    @property
    def cost_change_pico_usd(self) -> int:
        return self.replayed.cost_pico_usd - self.logged.cost_pico_usd

    @property
    def moves(self) -> Sequence[Move]:
        return [move for _, move in sorted(self.by_models.items())]

    def add(
        self, logged: LoggedRequest, model: str, cost: int | None, quality: float | None, first_token: float | None
    ) -> None:
        """Add a request that both worlds serve, as it was and as it would be."""
        before = logged.cost_pico_usd
        if before is None or cost is None:
            before = cost = None
        self.logged.add(logged.model, before, logged.quality, logged.time_to_first_token_seconds)
        self.replayed.add(model, cost, quality, first_token)

    def note_move(self, logged: LoggedRequest, model: str, cost: int | None) -> None:
        self.moved += 1
        move = self.by_models.setdefault((logged.model, model), Move(logged.model, model))
        move.requests += 1
        if cost is None or logged.cost_pico_usd is None:
            move.unpriced += 1
        else:
            move.cost_change_pico_usd += cost - logged.cost_pico_usd
