"""What one request holds until the database has its entry. It knows no limits: `Admission` decides what is taken."""

from collections.abc import Iterator

import msgspec

from gateway.limits.purse import Purse
from gateway.limits.stay import Stay


class Hold(msgspec.Struct):
    """The same `amount` in each of its budgets' `purses`, its tier's quota purse, the models charged to that quota
    (`quota_models`), and its place (`stay`) in the model's concurrency limit. `cost`, and whether it `counts` in the
    quota, are known at its end; before that both are nothing."""

    purses: list[Purse] = []
    amount: int = 0
    quota: Purse | None = None
    quota_models: frozenset[str] = frozenset()
    stay: Stay | None = None
    cost: int = 0
    counts: bool = False
    is_sent: bool = False

    @property
    def is_charged(self) -> bool:
        """Whether its entry concerns any account."""
        return bool(self.purses) or self.quota is not None

    def settle(self) -> None:
        """The request ended: what it did not cost is free again."""
        for purse in self.purses:
            purse.settle(self.amount, self.cost)
        if self.quota is not None:
            self.quota.settle(1, int(self.counts))
        if self.stay is not None:
            self.stay.let_go()

    def carry(self) -> None:
        """As `Purse.carry`."""
        for purse, cost in self._charges():
            purse.carry(cost)

    def sending(self) -> None:
        """As `Purse.sending`, the first time."""
        if not self.is_sent:
            self.is_sent = True
            for purse, cost in self._charges():
                purse.sending(cost)

    def shipped(self) -> None:
        """As `Purse.shipped`."""
        for purse, cost in self._charges():
            purse.shipped(cost)

    def _charges(self) -> Iterator[tuple[Purse, int]]:
        yield from ((purse, self.cost) for purse in self.purses)
        if self.quota is not None:
            yield self.quota, int(self.counts)
