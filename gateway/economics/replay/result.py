"""What a replay found: the same requests under both sets of rules, in dollars, quality and first tokens."""

from array import array
from dataclasses import dataclass, field

import numpy as np

from gateway.economics.replay.log import LoggedRequest


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two worlds, for the requests that both serve. Costs exclude GPU rent and the `unpriced` requests,
    whose cost is unknown in either world, so that both sums cover the same requests."""

    cost_pico_usd: int
    unpriced: int
    requests_by_model: dict[str, int]
    mean_quality: float | None
    time_to_first_token_p50_seconds: float | None


@dataclass(frozen=True, slots=True)
class Move:
    """Requests that moved to another model, and the change of their cost (negative: cheaper).

    The change excludes `unpriced` ones, whose cost before or after is unknown.
    """

    logged_model: str
    model: str
    requests: int
    cost_change_pico_usd: int
    unpriced: int


@dataclass(frozen=True, slots=True)
class ReplayDiff:
    """`refused` requests found no model under the new rules and are on neither side. The answers of `unverified` ones
    would be verified with unknown outcome: they count as passing.

    `refused_down` of the refused ones were refused only because models were down then. `failed` ones got no
    answer in the log, and others would be asked for it now. `cached_tokens` of the moved ones were read from a prompt
    cache and count as fresh; if cached at the new model, they would cost `cached_pico_usd` less.
    """

    requests: int
    moved: int
    refused: int
    logged: Side
    replayed: Side
    moves: tuple[Move, ...]
    unverified: int = 0
    refused_down: int = 0
    failed: int = 0
    cached_tokens: int = 0
    cached_pico_usd: int = 0

    @property
    def cost_change_pico_usd(self) -> int:
        return self.replayed.cost_pico_usd - self.logged.cost_pico_usd


@dataclass(slots=True)
class SideTally:
    cost: int = 0
    unpriced: int = 0
    requests: dict[str, int] = field(default_factory=dict[str, int])
    quality_sum: float = 0.0
    quality_count: int = 0
    first_tokens: "array[float]" = field(default_factory=lambda: array("d"))

    def add(self, model: str, cost: int | None, quality: float | None, first_token: float | None) -> None:
        self.requests[model] = self.requests.get(model, 0) + 1
        if cost is None:
            self.unpriced += 1
        else:
            self.cost += cost
        if quality is not None:
            self.quality_sum += quality
            self.quality_count += 1
        if first_token is not None:
            self.first_tokens.append(first_token)

    def close(self) -> Side:
        return Side(
            cost_pico_usd=self.cost,
            unpriced=self.unpriced,
            requests_by_model=self.requests,
            mean_quality=self.quality_sum / self.quality_count if self.quality_count else None,
            time_to_first_token_p50_seconds=float(np.quantile(self.first_tokens, 0.5)) if self.first_tokens else None,
        )


@dataclass(slots=True)
class Tally:
    """Running sums."""

    requests: int = 0
    moved: int = 0
    refused: int = 0
    refused_down: int = 0
    failed: int = 0
    unverified: int = 0
    cached_tokens: int = 0
    cached_pico_usd: int = 0
    logged: SideTally = field(default_factory=SideTally)
    replayed: SideTally = field(default_factory=SideTally)
    moves: dict[tuple[str, str], list[int]] = field(default_factory=dict[tuple[str, str], list[int]])

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
        known = None if cost is None or logged.cost_pico_usd is None else cost - logged.cost_pico_usd
        row = self.moves.setdefault((logged.model, model), [0, 0, 0])
        row[0] += 1
        row[1] += known or 0
        row[2] += known is None

    def close(self) -> ReplayDiff:
        return ReplayDiff(
            requests=self.requests,
            moved=self.moved,
            refused=self.refused,
            logged=self.logged.close(),
            replayed=self.replayed.close(),
            moves=tuple(Move(before, after, *counted) for (before, after), counted in sorted(self.moves.items())),
            unverified=self.unverified,
            refused_down=self.refused_down,
            failed=self.failed,
            cached_tokens=self.cached_tokens,
            cached_pico_usd=self.cached_pico_usd,
        )
