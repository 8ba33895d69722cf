"""What decisions take into account about the traffic under each rule: exploration spending, and thresholds.

Per worker. Decides nothing and reads nothing: it is told what happened.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from gateway.instants import DAY_US
from gateway.ledger.entry import Decision, Entry


@dataclass(slots=True)
class RuleState:
    """Both become facts of the next decision, so they are replaced, never modified."""

    explored_pico_usd: dict[str, int] = field(default_factory=dict[str, int])
    allowed_loss: dict[str, float] = field(default_factory=dict[str, float])


class ExplorationSpend:
    """Pico-USD spent on exploration in this UTC day, by rule. A request in progress counts with its expected cost
    beyond the preferred model's, a settled one with its actual cost beyond it.

    Each of `workers` has a share of a cap: what this one spends is taken as typical of all. A clock set back finds the
    earlier day's sums.
    """

    def __init__(self, state: RuleState, now_us: Callable[[], int], *, workers: int = 1) -> None:
        self._state = state
        self._now_us = now_us
        self._workers = workers
        self._day = now_us() // DAY_US
        self._days: dict[int, dict[str, int]] = {}
        self._held: dict[str, tuple[str, int]] = {}

    def began(self, request_id: str, decision: Decision) -> None:
        """Records an accepted request, which may try another model than the preferred one."""
        self._held[request_id] = (decision.rule, decision.exploration_pico_usd)
        self._show()

    def settled(self, entry: Entry) -> None:
        """Called for every entry; most explored nothing."""
        held = self._held.pop(entry.intent.request_id, None)
        if held is not None:
            self.turn()
            self._add(held[0], extra_cost_pico_usd(entry))
            self._show()

    def turn(self) -> None:
        """Starts a new day's budget, if the day has changed."""
        day = self._now_us() // DAY_US
        if day != self._day:
            self._day = day
            self._show()

    def seed(self, spent_pico_usd: Mapping[str, int]) -> None:
        """Adds what all workers spent today before this process started, by rule."""
        for rule, spent in spent_pico_usd.items():
            self._add(rule, spent // self._workers)
        self._show()

    def _add(self, rule: str, pico_usd: int) -> None:
        spent = self._days.setdefault(self._day, {})
        spent[rule] = spent.get(rule, 0) + pico_usd

    def _show(self) -> None:
        spent = dict(self._days.get(self._day, {}))
        for rule, held in self._held.values():
            spent[rule] = spent.get(rule, 0) + held
        self._state.explored_pico_usd = {rule: amount * self._workers for rule, amount in spent.items() if amount}


def extra_cost_pico_usd(entry: Entry) -> int:
    """Actual cost beyond the preferred model's expected cost; the expected difference if the price is unknown."""
    decision = entry.intent.decision
    if entry.cost is None or decision.expected_cost_pico_usd is None:
        return decision.exploration_pico_usd
    preferred = decision.expected_cost_pico_usd - decision.exploration_pico_usd
    return max(0, entry.cost.total_pico_usd - preferred)
