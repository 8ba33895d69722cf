"""What decisions take into account about the traffic under each rule: exploration spending, and thresholds.

Per worker. Decides nothing and reads nothing: it is told what happened.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from gateway.instants import DAY_US
from gateway.ledger.entry import Decision, Entry
from gateway.stores import Explored

NO_ROOM = 1 << 62
"""Pico-USD that leave no room under any cap."""


@dataclass(slots=True)
class RuleState:
    """Both become facts of the next decision, so they are replaced, never modified."""

    explored_pico_usd: dict[str, int] = field(default_factory=dict[str, int])
    allowed_loss: dict[str, float] = field(default_factory=dict[str, float])


class ExplorationSpend:
    """Pico-USD spent on exploration in this UTC day, by rule: by this worker, and by others as far as it was told. A
    request in progress counts with its expected cost beyond the preferred model's, a settled one with its actual cost
    beyond it. A clock set back finds the earlier day's sums.
    """

    def __init__(self, state: RuleState, now_us: Callable[[], int]) -> None:
        self._state = state
        self._now_us = now_us
        self._day = now_us() // DAY_US
        self._days: dict[int, dict[str, int]] = {}
        self._others: dict[int, dict[str, int]] = {}
        self._others_hold: Mapping[str, int] = {}
        self._untold: frozenset[str] = frozenset()
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

    def own(self) -> tuple[int, Mapping[str, int], Mapping[str, int]]:
        """The day, counted from the epoch, what this worker has spent of it, and what it holds."""
        self.turn()
        held: dict[str, int] = {}
        for rule, amount in self._held.values():
            held[rule] = held.get(rule, 0) + amount
        return self._day, dict(self._days.get(self._day, {})), held

    def told(self, day: int, spent_pico_usd: Mapping[str, int], held_pico_usd: Mapping[str, int]) -> None:
        """What all others spent on that day, earlier processes included, and what they hold now, by rule. A sum spent
        that falls is not believed: whoever told it may have lost a part."""
        known = self._others.setdefault(day, {})
        for rule, spent in spent_pico_usd.items():
            known[rule] = max(spent, known.get(rule, 0))
        self._others_hold = held_pico_usd
        self._untold = frozenset()
        self._show()

    def not_told(self, rules: Iterable[str]) -> None:
        """What others spend cannot be known now: these rules have no more money until somebody tells."""
        self._untold = frozenset(rules)
        self._show()

    def _add(self, rule: str, pico_usd: int) -> None:
        spent = self._days.setdefault(self._day, {})
        spent[rule] = spent.get(rule, 0) + pico_usd

    def _show(self) -> None:
        day, spent = self._day, dict(self._days.get(self._day, {}))
        held = (*self._held.values(), *self._others_hold.items())
        for rule, amount in (*self._others.get(day, {}).items(), *held, *((rule, NO_ROOM) for rule in self._untold)):
            spent[rule] = spent.get(rule, 0) + amount
        self._state.explored_pico_usd = {rule: amount for rule, amount in spent.items() if amount}


def extra_cost_pico_usd(entry: Entry) -> int:
    """What an entry cost beyond the preferred model; see Explored."""
    decision, cost = entry.intent.decision, entry.cost
    total = None if cost is None else cost.total_pico_usd
    return Explored(total, decision.expected_cost_pico_usd, decision.exploration_pico_usd).extra_pico_usd
