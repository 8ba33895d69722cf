"""What traffic has come to under each rule, as far as a decision looks at it: money spent on exploring, thresholds.

One worker's own. Decides nothing and reads nothing: who changes it is told what happened.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from gateway.instants import DAY_US
from gateway.ledger.entry import Decision, Entry


@dataclass(slots=True)
class RuleState:
    """Both become facts of the next decision, so they are replaced whole and never changed."""

    explored_pico_usd: dict[str, int] = field(default_factory=dict[str, int])
    allowed_loss: dict[str, float] = field(default_factory=dict[str, float])


class ExplorationSpend:
    """Pico-USD that exploring has cost in this UTC day, by rule. A request under way counts as what it was expected to
    cost beyond the preferred model, a settled one as what it did cost beyond it.

    Of `workers` each has its share of a cap: what one has spent stands for what all have. A clock that is put back
    finds the day as it left it.
    """

    def __init__(self, state: RuleState, now_us: Callable[[], int], *, workers: int = 1) -> None:
        self._state = state
        self._now_us = now_us
        self._workers = workers
        self._day = now_us() // DAY_US
        self._days: dict[int, dict[str, int]] = {}
        self._held: dict[str, tuple[str, int]] = {}

    def began(self, request_id: str, decision: Decision) -> None:
        """An accepted request tries another model than the preferred one."""
        self._held[request_id] = (decision.rule, decision.exploration_pico_usd)
        self._show()

    def settled(self, entry: Entry) -> None:
        """Told of every entry; most were no exploration."""
        held = self._held.pop(entry.intent.request_id, None)
        if held is not None:
            self.turn()
            self._add(held[0], extra_cost_pico_usd(entry))
            self._show()

    def turn(self) -> None:
        """A new day has all its money."""
        day = self._now_us() // DAY_US
        if day != self._day:
            self._day = day
            self._show()

    def seed(self, spent_pico_usd: Mapping[str, int]) -> None:
        """What all workers spent of today before this process began, by rule."""
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
    """What an explored request cost more than the preferred model was expected to; where its price is not known, what
    it was expected to."""
    decision = entry.intent.decision
    if entry.cost is None or decision.expected_cost_pico_usd is None:
        return decision.exploration_pico_usd
    preferred = decision.expected_cost_pico_usd - decision.exploration_pico_usd
    return max(0, entry.cost.total_pico_usd - preferred)
