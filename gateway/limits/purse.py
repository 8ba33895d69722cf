"""What one worker holds of one account: arithmetic only, no clock and no store.

total = free + reserved by requests in progress + spent but not yet visible in the ledger
"""

from collections import deque
from dataclasses import dataclass, field

from gateway.limits.counters import Account, Holding


@dataclass(slots=True)
class Purse:
    """`free` is negative after an answer cost more than its reservation, until a lease or the ledger makes up for
    it."""

    account: Account
    limit: int
    free: int = 0
    reserved: int = 0
    under_way: int = 0  # requests that have reserved here, be it nothing: a fallback may cost more than a free model
    _too_much: int = 0  # reserved when the limit was lowered: what it leaves unused may be above the new one
    as_of: int = 0  # the last reading of the ledger known to this purse
    unshipped: int = 0
    _unsent: int = 0
    shipped_amount: int = 0  # shipped, but not yet assigned to a reading of the ledger
    _unread: deque[tuple[int, int]] = field(default_factory=deque[tuple[int, int]])
    _unread_sum: int = 0
    idle_reports: int = 0  # since money was last requested from here
    waiting: int = 0  # requests that wait for money from here

    @property
    def holding(self) -> Holding:
        spent = self.unshipped + self.shipped_amount + self._unread_sum
        return Holding(self.free + self.reserved + spent, spent, self._unsent, self.as_of)

    def reserve(self, amount: int) -> bool:
        """Reserve money for a request, if enough is free."""
        self.idle_reports = 0
        if amount > self.free:
            return False
        self.extend(amount)
        self.under_way += 1
        return True

    def extend(self, more: int) -> None:
        """Reserve more of what is free for a request under way."""
        self.idle_reports = 0
        self.free -= more
        self.reserved += more

    def settle(self, reserved: int, cost: int) -> None:
        """A request ended: the unused part of its reservation is free again."""
        self.under_way -= 1
        self.reserved -= reserved
        self.free += reserved - cost
        if self._too_much > 0:
            self._too_much -= reserved
            self.give_back()
        self.unshipped += cost
        self._unsent += cost

    def carry(self, cost: int) -> None:
        """A request settled before this worker restarted is not in the database yet."""
        self.unshipped += cost
        self._unsent += cost

    def sending(self, cost: int) -> None:
        """A settled request is on its way to the database: readings of the ledger may include it from now on."""
        self._unsent -= cost

    def shipped(self, cost: int) -> None:
        """A settled request is in the database: any reading of the ledger that begins now will include it."""
        self.unshipped -= cost
        self.shipped_amount += cost

    def await_reading(self, number: int, amount: int) -> None:
        """This much of what was shipped will be included from reading `number` on."""
        if amount:
            self.shipped_amount -= amount
            self._unread.append((number, amount))
            self._unread_sum += amount

    def books_read(self, number: int) -> None:
        """Reading `number` is complete: what it includes is no longer held here."""
        self.as_of = number
        while self._unread and self._unread[0][0] <= number:
            self._unread_sum -= self._unread.popleft()[1]

    def lower(self, limit: int) -> None:
        """Return what was leased under the higher limit: the intent is to spend less from now on."""
        self.limit, self._too_much = limit, self.reserved
        self.give_back()

    def give_back(self) -> None:
        """Free everything that no request needs."""
        self.free = min(self.free, 0)

    @property
    def is_empty(self) -> bool:
        holding = self.holding
        return not (holding.total or holding.spent or self.under_way or self.waiting)
