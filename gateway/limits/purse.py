"""What one worker holds of one account: arithmetic only, no clock and no store.

total = free + reserved by requests under way + spent and not yet seen in the books
"""

from collections import deque
from dataclasses import dataclass, field

from gateway.limits.counters import Account, Holding


@dataclass(slots=True)
class Purse:
    """`free` is negative after an answer cost more than was reserved for it, until a lease or the books make it up."""

    account: Account
    limit: int
    free: int = 0
    reserved: int = 0
    as_of: int = 0  # the last reading of the books this purse knows of
    unshipped: int = 0
    _unsent: int = 0
    shipped_amount: int = 0  # not yet waiting for a certain reading of the books
    _unread: deque[tuple[int, int]] = field(default_factory=deque[tuple[int, int]])
    _unread_sum: int = 0
    idle_reports: int = 0  # since money was last wanted from here
    waiting: int = 0  # requests that want money from here

    @property
    def holding(self) -> Holding:
        spent = self.unshipped + self.shipped_amount + self._unread_sum
        return Holding(self.free + self.reserved + spent, spent, self._unsent, self.as_of)

    def reserve(self, amount: int) -> bool:
        """Set money aside for a request, if it is here."""
        self.idle_reports = 0
        if amount > self.free:
            return False
        self.free -= amount
        self.reserved += amount
        return True

    def settle(self, reserved: int, cost: int) -> None:
        """A request ended: what it did not need is free again."""
        self.reserved -= reserved
        self.free += reserved - cost
        self.unshipped += cost
        self._unsent += cost

    def carry(self, cost: int) -> None:
        """An earlier life of this worker settled a request, and it is not in the database yet."""
        self.unshipped += cost
        self._unsent += cost

    def sending(self, cost: int) -> None:
        """A settled request is on its way to the database: from now on a reading of the books may show it."""
        self._unsent -= cost

    def shipped(self, cost: int) -> None:
        """A settled request is in the database; a reading of the books that begins from now on will see it."""
        self.unshipped -= cost
        self.shipped_amount += cost

    def await_reading(self, number: int, amount: int) -> None:
        """So much of what was shipped will be in the books from reading `number` on."""
        if amount:
            self.shipped_amount -= amount
            self._unread.append((number, amount))
            self._unread_sum += amount

    def books_read(self, number: int) -> None:
        """Reading `number` of the books is done: what it saw is not held here any more."""
        self.as_of = number
        while self._unread and self._unread[0][0] <= number:
            self._unread_sum -= self._unread.popleft()[1]

    def give_back(self) -> None:
        """Hold nothing that no request needs."""
        self.free = min(self.free, 0)

    @property
    def is_empty(self) -> bool:
        holding = self.holding
        return not (holding.total or holding.spent or self.reserved or self.waiting)
