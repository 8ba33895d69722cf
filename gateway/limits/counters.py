"""What workers count together: rates, concurrent requests, and how much of a budget each holds. Names no store.

A budget is never decremented per request. A worker leases an amount, spends it on its own, and keeps counting what it
spent as held until the ledger (`books` in names: the sums in the database) shows it. So at any moment, for every
account,

    limit >= spent according to the ledger + held by all workers

and a store that lost its data can be rebuilt: `spent` comes from the ledger, and each worker knows what it holds.

A silent worker cannot say what it spent, so its lease expires, for itself earlier than for the others. It stops
spending LEASE_SECONDS after its last question that the store answered. The others count all of the lease as held for
SILENT_SECONDS, and then until the ledger is read: by then everything it spent has reached the ledger.

An account that is in the configuration is in every reading. Of end users there is no list and no bound, so a reading
includes only the accounts that some worker holds; any other is read by itself when it is first needed
(`read_accounts`), and that counts as a reading with the number of the last one that had begun.

Each request in progress has a place that expires PLACE_SECONDS after its worker last renewed it, so that the places
of a killed worker become free.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

MONEY_UNIT = 1000
"""Shared stores count money in whole nano-USD, rounded against the spender: doubles represent those exactly up to $9
million."""
LEASE_SECONDS = 40.0
SILENT_SECONDS = 60.0
"""Exceeds LEASE_SECONDS by the time that shipping takes, or by as much as the store's clock may jump forward
unnoticed."""

PLACE_SECONDS = 30.0
RENEW_SECONDS = 5.0
"""Short enough that places outlast a brief outage of the store."""

LESS_SECONDS = 60.0
"""For this long a reading with a lower sum than before is neither believed nor counted as a reading: a lagging replica
may have taken over, and what it lacks is shipped again. Genuine credits wait as long."""


class CountersDown(Exception):
    """The shared store is unreachable; the text says why."""


@dataclass(frozen=True, slots=True)
class Rate:
    """Takes `amount` from a bucket of `per_minute` that refills in one minute; an amount above that takes a full
    bucket."""

    bucket: str
    amount: float
    per_minute: int


@dataclass(frozen=True, slots=True)
class Shortage:
    """The rate that fell short, and when enough will be there."""

    rate: Rate
    wait_seconds: float


@dataclass(frozen=True, slots=True)
class Places:
    """A concurrency limit, of a bucket such as `key:ID`, `team:NAME` or `model:NAME`."""

    bucket: str
    most: int


END_USERS = "end_user:"
"""What the names of end users' accounts begin with."""


@dataclass(frozen=True, slots=True)
class Account:
    """What is limited, within one window. Nothing is ever reset: each window is a new account that begins at 0."""

    name: str
    window: str
    unit: int = MONEY_UNIT

    @property
    def is_end_users(self) -> bool:
        """Whether it is one of the accounts that nobody can list."""
        return self.name.startswith(END_USERS)

    @property
    def key_and_end_user(self) -> tuple[str, str]:
        """Of an end user's account."""
        key_id, _, end_user = self.name.removeprefix(END_USERS).partition(":")
        return key_id, end_user


def budget_account(name: str, window: str, *, scope: str = "key") -> Account:
    """The money of a key, a team, a project, everything or, with the scope `end_user` and the name `KEY:END_USER`, of
    one end user of a key; `window` is a gateway.limits.values.window_id."""
    return Account(f"{scope}:{name}", window)


def quota_account(key_id: str, tier: str, window: str) -> Account:
    """A key's requests to the models of a tier."""
    return Account(f"tier:{tier}:{key_id}", window, unit=1)


@dataclass(frozen=True, slots=True)
class Holding:
    """What one worker accounts for in one account (`total`), and how much of it is spent for good (`spent`).

    `unsent` is the part of `spent` not even on its way to the database: no reading up to `as_of`, the latest known to
    this worker, can include it.
    """

    total: int
    spent: int
    unsent: int = 0
    as_of: int = 0


@dataclass(frozen=True, slots=True)
class Grant:
    """`amount` is 0 if less than the need is left; the other fields then tell whether waiting can help.

    `spent` is what the ledger shows, `held` what other workers hold, `held_spent` the part of it that will not come
    back. A charge may be in both `spent` and `held_spent` for a while; `surely_gone` counts nothing twice and includes
    what the asking worker spent. `is_unread`: the ledger has not been read for this account, so nothing is leased yet.
    """

    amount: int
    spent: int = 0
    held: int = 0
    held_spent: int = 0
    surely_gone: int = 0
    is_unread: bool = False


@dataclass(frozen=True, slots=True)
class Standing:
    """How far the ledger has been read. A reading numbered above `begun` will include everything in the ledger by now.

    `read` is the last complete reading; at 0 there is none and nothing can be leased. `tight` are accounts in which a
    request was refused: money held there unused should be returned.
    """

    begun: int
    read: int
    tight: frozenset[Account] = frozenset()


Books = Callable[[], Awaitable[Mapping[Account, int]]]
"""What the ledger shows for every account with a limit in a window that is read, also of those that spent nothing."""
AccountBooks = Callable[[Collection[Account]], Awaitable[Mapping[Account, int]]]
"""What the ledger shows for each of these accounts of end users."""


Corrections = Callable[[], Awaitable[int]]
"""A number that rises with each correction of the ledger. It tells a refund from a database that is behind."""


async def no_end_users(accounts: Collection[Account]) -> Mapping[Account, int]:
    """For books without accounts of end users."""
    return {}


async def no_corrections() -> int:
    """For books that nobody corrects."""
    return 0


class Counters(Protocol):
    """Every method may raise CountersDown, except `leave`."""

    async def take(self, rates: Sequence[Rate], left: list[float] | None = None) -> Shortage | None:
        """Take from all buckets or from none. While the store is down, a local stand-in that is never looser answers.

        Appends to `left` what each bucket then holds, as far as known here; negative after a request larger than the
        whole rate was let in.
        """
        ...

    async def enter(self, name: str, places: Sequence[Places]) -> Places | None:
        """Take one place of each for a request with a name unique in the fleet; or take none and return the limit that
        is full. A local stand-in answers while the store is down, as for rates."""
        ...

    def leave(self, name: str) -> Awaitable[object] | None:
        """Return what was taken under that name, if anything: here at once, everywhere else when the result has been
        awaited. Does not wait and never raises: it is called wherever a request may end."""
        ...

    async def renew(self) -> None:
        """Say that the places taken here are still needed. Call it every RENEW_SECONDS."""
        ...

    async def lease(self, account: Account, *, limit: int, holding: Holding, need: int, want: int) -> Grant:
        """Register what this worker holds, and add between `need` and `want` to it if the limit allows."""
        ...

    async def report(self, holdings: Mapping[Account, Holding]) -> Standing:
        """Register what this worker holds in these accounts, empty holdings included."""
        ...

    async def read_books(
        self,
        books: Books,
        *,
        is_urgent: bool = False,
        of_end_users: AccountBooks = no_end_users,
        corrections: Corrections = no_corrections,
    ) -> bool:
        """Read the ledger for all workers, with those accounts of end users that some worker holds; False if another
        one just did (with `is_urgent`, within the last moment). What shows less than before is believed at once if
        there were corrections since, otherwise only once it has lasted."""
        ...

    async def read_accounts(self, accounts: Collection[Account], of_end_users: AccountBooks) -> int:
        """Read accounts of end users that were in no reading; returns how many became known by that. 0 until the ledger
        has been read, and when a reading that began later is complete already."""
        ...

    async def share(self, name: str, own: Mapping[str, int]) -> Mapping[str, int]:
        """Replaces this process' own sums under a name, and adds up those of all processes, ended ones included. They
        are forgotten two days after the last was shared."""
        ...

    async def aclose(self) -> None: ...
