"""What several workers count together: rates, requests under way, who holds how much of a budget. Names no store.

A budget is never counted down request by request. A worker leases an amount, spends it by itself, and goes on counting
what it spent as held until the books (the database's sums) show it. So for every account, at any moment,

    limit >= spent according to the books + held by all workers

and whatever the store forgets can be rebuilt: `spent` is read from the books, and every worker knows what it holds.

A worker that nothing is heard of cannot say what it spent, so its lease ends, and for itself before it ends for the
others. It spends nothing more LEASE_SECONDS after it asked what the store answered last. The others count all of it as
held for SILENT_SECONDS, and then until the books are read: all that it spent has had time to come into them.

A request under way has a place of its own that ends PLACE_SECONDS after its worker last said that it is still needed:
what a worker held that was killed is free again by then.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

MONEY_UNIT = 1000
"""Shared stores count money in whole nano-USD, rounded against the spender: floats hold those up to $9 million."""
LEASE_SECONDS = 40.0
SILENT_SECONDS = 60.0
"""Longer than LEASE_SECONDS by what shipping takes, or by as much as a store's clock is put forward unnoticed."""

PLACE_SECONDS = 30.0
RENEW_SECONDS = 5.0
"""Often enough that a place outlasts a store that is away for a moment."""

LESS_SECONDS = 60.0
"""For so long a reading that shows less of an account than the one before is not believed, and does not count as one: a
replica that was behind took over, and what it had not got is being shipped again. A credit waits as long."""


class CountersDown(Exception):
    """The shared store cannot be asked now; its text says why."""


@dataclass(frozen=True, slots=True)
class Rate:
    """Takes `amount` from a bucket that holds `per_minute` and refills in a minute; more than it holds empties it."""

    bucket: str
    amount: float
    per_minute: int


@dataclass(frozen=True, slots=True)
class Shortage:
    """Which of the rates lacked something, and when it will have it."""

    rate: Rate
    wait_seconds: float


@dataclass(frozen=True, slots=True)
class Places:
    """How many requests may be under way at once, and whose: `key:ID`, `team:NAME` or `model:NAME`."""

    bucket: str
    most: int


@dataclass(frozen=True, slots=True)
class Account:
    """What is limited, in one window, which is part of its name: nothing is ever reset, a new one begins at 0."""

    name: str
    window: str
    unit: int = MONEY_UNIT


def budget_account(name: str, window: str, *, scope: str = "key") -> Account:
    """The money of a key, a team, a project or everything; `window` as gateway.limits.values.window_id names it."""
    return Account(f"{scope}:{name}", window)


def quota_account(key_id: str, tier: str, window: str) -> Account:
    """A key's requests to the models of a tier."""
    return Account(f"tier:{tier}:{key_id}", window, unit=1)


@dataclass(frozen=True, slots=True)
class Holding:
    """Of one worker in one account: all it accounts for, and how much of that is spent for good.

    `unsent` is the part of `spent` that is not even on its way to the database: no reading up to `as_of`, the last one
    this worker had heard of, can show it.
    """

    total: int
    spent: int
    unsent: int = 0
    as_of: int = 0


@dataclass(frozen=True, slots=True)
class Grant:
    """`amount` is 0 where less than the need is left; then the rest says whether waiting can help.

    `spent` is what the books show, `held` what other workers hold, `held_spent` the part of it that will not come back.
    A charge may be in both `spent` and `held_spent` for a while; `surely_gone` counts nothing twice, and includes what
    the asking worker spent. `is_unread`: the books were not read for this account yet; until then nothing is leased.
    """

    amount: int
    spent: int = 0
    held: int = 0
    held_spent: int = 0
    surely_gone: int = 0
    is_unread: bool = False


@dataclass(frozen=True, slots=True)
class Booked:
    """What the books say: every account that has a limit in one of the `windows`, those that spent nothing included."""

    spent: Mapping[Account, int]
    windows: frozenset[str]


@dataclass(frozen=True, slots=True)
class Standing:
    """Where the readings of the books stand. One numbered above `begun` will see what is in the books by now.

    `read` is the last complete one and covers `windows`; 0: there is none yet and nothing can be leased. `tight` are
    accounts somebody was refused in: what is held there unused should be given back.
    """

    begun: int
    read: int
    windows: frozenset[str]
    workers: int
    tight: frozenset[Account] = frozenset()


Books = Callable[[], Awaitable[Booked]]


class Counters(Protocol):
    """Every call may raise CountersDown."""

    async def take(self, rates: Sequence[Rate], left: list[float] | None = None) -> Shortage | None:
        """From all buckets, or from none. A store that is down is stood in for here, never looser than agreed.

        Into `left` goes what each bucket then holds, as far as it is known here; less than nothing where a request
        above the whole rate was let in.
        """
        ...

    async def enter(self, name: str, places: Sequence[Places]) -> Places | None:
        """Take one place of each for a request of that name, no other's in the fleet; or none, and say which are all
        taken. A store that is down is stood in for, as for rates."""
        ...

    def leave(self, name: str) -> Awaitable[object] | None:
        """Give back what was taken under that name, where anything was: here at once, and everywhere once what is
        returned is done. Waits for nothing itself and raises nothing: it is called wherever a request may end."""
        ...

    async def renew(self) -> None:
        """Say that what was taken here is still needed. Call it every RENEW_SECONDS."""
        ...

    async def lease(self, account: Account, *, limit: int, holding: Holding, need: int, want: int) -> Grant:
        """Register what this worker holds, and add between `need` and `want` to it where the limit allows."""
        ...

    async def report(self, holdings: Mapping[Account, Holding]) -> Standing:
        """Register what this worker holds now in these accounts, an empty holding included."""
        ...

    async def read_books(self, books: Books, *, is_urgent: bool = False) -> bool:
        """Read the books for everybody; False: somebody else just did, which where it is urgent is a moment ago."""
        ...

    async def aclose(self) -> None: ...
