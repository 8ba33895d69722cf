"""Counters shared by all workers and replicas through Redis; see gateway.limits.counters for what they mean.

Redis may lose everything: spending is read again from the database, workers report their holdings twice a second, and
requests in progress every few seconds.
"""

import logging
import math
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, cast

import msgspec
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as ConnectionLost
from redis.exceptions import RedisError

from gateway.limits.counters import (
    LESS_SECONDS,
    PLACE_SECONDS,
    Account,
    AccountBooks,
    Books,
    Corrections,
    CountersDown,
    Grant,
    Holding,
    Places,
    Rate,
    Shortage,
    Standing,
    no_corrections,
    no_end_users,
)
from gateway.limits.local_counters import LocalCounters
from gateway.storage.redis.client import NO_CLUSTER, Connections, is_cluster, open_client, reason
from gateway.storage.redis.places import PLACE_SCRIPTS, RedisPlaces
from gateway.storage.redis.primary import ROOT
from gateway.storage.redis.scripts import (
    ADD_TO_READING,
    BEGIN_READING,
    CLAIM,
    END_READING,
    LEASE,
    REPORT,
    SHARE,
    TAKE,
)

log = logging.getLogger(__name__)
PREFIX = f"{ROOT}:"
CONNECT_SECONDS = 1.0
ANSWER_SECONDS = 2.0
SUMS_MS = 2 * 86_400_000
READ_EVERY_MS = 9000
READ_URGENTLY_EVERY_MS = 200
SETTLE_SECONDS = CONNECT_SECONDS + ANSWER_SECONDS + 1.0
"""Time in which every worker reports its holdings to a store that was emptied or replaced: its current report fails, it
pauses, and its next one succeeds."""


THEIRS = (
    "it counts what another deployment spends, one with another pepper: give this one a Redis of its own, or another "
    "database of this one (redis://HOST/1, but a cluster has only one). One that is gone is forgotten ten minutes "
    "after its end"
)


def connect(url: str) -> Redis:
    """A client of that server; does not connect yet."""
    return open_client(url, connect_seconds=CONNECT_SECONDS, answer_seconds=ANSWER_SECONDS, decodes=True)


class RedisCounters:
    """Implements Counters for one `worker`, whose name must be unique in the fleet and the same after a restart.

    `fleet` identifies the deployments that share a database. Two fleets must not share counters: each would take what
    the other read from its database for its own spending, since both may have teams of the same name.

    While Redis is down, rates and places are counted here, with limits divided by the last known number of workers.
    """

    def __init__(
        self,
        client: Redis,
        *,
        worker: str,
        fleet: str = "",
        workers: int = 1,
        settle_seconds: float = SETTLE_SECONDS,
        less_seconds: float = LESS_SECONDS,
        place_seconds: float = PLACE_SECONDS,
    ) -> None:
        self._client = client
        self.worker = worker
        self._process = secrets.token_hex(8)
        self._fleet = fleet
        self._settle_ms = round(settle_seconds * 1000)
        self._less_ms = round(less_seconds * 1000)
        self._epoch = ""
        self._workers = workers
        self._is_down = False
        self._alone = LocalCounters(share=lambda: self._workers)
        self._places = RedisPlaces(
            self._run,
            is_down=lambda: self._is_down,
            share=lambda: self._workers,
            prefix=f"{PREFIX}places:",
            place_seconds=place_seconds,
        )
        scripts = (LEASE, REPORT, BEGIN_READING, END_READING, ADD_TO_READING, CLAIM, SHARE, TAKE, *PLACE_SCRIPTS)
        self._scripts = {text: client.register_script(text) for text in scripts}

    async def take(self, rates: Sequence[Rate], left: list[float] | None = None) -> Shortage | None:
        if self._is_down:  # no request waits for a store that is down; `report` notices when it is back
            return await self._alone.take(rates, left)
        keys = [f"{PREFIX}rate:{rate.bucket}" for rate in rates]
        arguments = [number for rate in rates for number in (rate.amount, rate.per_minute)]
        try:
            answer = await self._run(TAKE, keys, arguments)
        except CountersDown:
            return await self._alone.take(rates, left)
        short, *figures = answer
        if short:
            return Shortage(rates[short - 1], figures[0] / 1000)
        if left is not None:
            left.extend(figures)
        return None

    async def enter(self, name: str, places: Sequence[Places]) -> Places | None:
        return await self._places.enter(name, places)

    def leave(self, name: str) -> Awaitable[object] | None:
        return self._places.leave(name)

    async def renew(self) -> None:
        await self._places.renew()

    async def lease(self, account: Account, *, limit: int, holding: Holding, need: int, want: int) -> Grant:
        if self._is_down:
            raise CountersDown("it did not answer")
        unit = account.unit
        answer = await self._in_epoch(
            LEASE,
            [
                self.worker,
                _name(account),
                limit // unit,
                *_in_units(holding, unit),
                math.ceil(need / unit),
                math.ceil(want / unit),
                self._settle_ms,
            ],
        )
        if answer[0] == "unread":
            return Grant(0, is_unread=True)
        granted, spent, held, held_spent, surely_gone = (int(number) * unit for number in answer[1:])
        return Grant(granted, spent, held, held_spent, surely_gone)

    async def report(self, holdings: Mapping[Account, Holding]) -> Standing:
        by_name = {_name(account): account for account in holdings}
        arguments: list[Any] = [self.worker]
        for account, holding in holdings.items():
            arguments += [_name(account), *_in_units(holding, account.unit)]
        answer = await self._in_epoch(REPORT, arguments)
        _, begun, read, workers, *tight = answer
        self._workers = max(1, int(workers))
        return Standing(int(begun), int(read), frozenset(by_name[name] for name in tight))

    async def read_books(
        self,
        books: Books,
        *,
        is_urgent: bool = False,
        of_end_users: AccountBooks = no_end_users,
        corrections: Corrections = no_corrections,
    ) -> bool:
        answer = await self._in_epoch(BEGIN_READING, [READ_URGENTLY_EVERY_MS if is_urgent else READ_EVERY_MS])
        if answer[0] == "busy":
            return False
        _, number, *held = answer
        corrected = await corrections()  # before the sums: they have these, and may have more
        booked = {**await books(), **(await of_end_users(list(map(_account, held))) if held else {})}
        await self._in_epoch(END_READING, [number, self._less_ms, corrected, *_spent(booked)])
        return True

    async def read_accounts(self, accounts: Collection[Account], of_end_users: AccountBooks) -> int:
        _, mark, epoch, _ = await self._in_epoch(ADD_TO_READING, ["", ""])
        booked = await of_end_users(accounts)
        *_, new = await self._in_epoch(ADD_TO_READING, [mark, epoch, *_spent(booked)])
        return int(new)

    async def share(self, name: str, own: Mapping[str, int]) -> Mapping[str, int]:
        key, mine = f"{PREFIX}sums:{self._fleet}:{name}", msgspec.json.encode(own).decode()
        everybodys = Counter[str]()
        for sums in await self._run(SHARE, [key], [self._process, mine, SUMS_MS]):
            everybodys.update(msgspec.json.decode(sums, type=dict[str, int]))
        return everybodys

    async def aclose(self) -> None:
        await self._places.aclose()
        await self._client.aclose()

    async def _in_epoch(self, script: str, arguments: Sequence[Any]) -> list[Any]:
        """Run a script in the current epoch; if that has changed, learn its name first."""
        key = f"{PREFIX}epoch"
        for _ in range(3):
            answer = await self._run(script, [key], [self._epoch, PREFIX, *arguments])
            if answer[0] != "epoch":
                return answer
            if not await self._claim(answer[1]):
                continue
            if self._epoch:
                log.warning(
                    "Redis was emptied or restarted; budgets are rebuilt from the books and from what workers hold"
                )
            self._epoch = answer[1]
        raise CountersDown("it is restarted or emptied again and again")

    async def _claim(self, epoch: str) -> bool:
        """Whether the epoch is this fleet's. False: it belonged to another fleet that is gone. Raises CountersDown if
        the other fleet is still active, and in a cluster whose address is that of one server."""
        keys = [f"{PREFIX}{epoch}:meta", f"{PREFIX}workers", f"{PREFIX}epoch"]
        [whose] = await self._run(CLAIM, keys, [self._fleet, "cluster" if is_cluster(self._client) else ""])
        if (refused := {"theirs": THEIRS, "cluster": NO_CLUSTER}.get(whose)) is not None:
            self._is_down = True
            raise CountersDown(refused)
        return bool(whose == "ours")

    async def _run(self, script: str, keys: Sequence[str], arguments: Sequence[Any]) -> list[Any]:
        run = cast("Callable[..., Awaitable[list[Any]]]", self._scripts[script])
        try:
            try:
                answer = await run(keys=keys, args=arguments)
            except ConnectionLost:  # its restart closed idle connections; running a script twice does no harm
                await cast(Connections, self._client.connection_pool).close_idle()
                answer = await run(keys=keys, args=arguments)
        except (RedisError, OSError) as error:
            self._is_down = True
            raise CountersDown(reason(error)) from error
        self._is_down = False
        return answer


def _name(account: Account) -> str:
    return f"{account.name}@{account.window}"


def _account(name: str) -> Account:
    """Of an end user: windows have no `@`, names may."""
    account, _, window = name.rpartition("@")
    return Account(account, window)


def _spent(booked: Mapping[Account, int]) -> Iterator[str | int]:
    """The arguments for the scripts, rounded against the spender."""
    for account, spent in booked.items():
        yield _name(account)
        yield math.ceil(spent / account.unit)


def _in_units(holding: Holding, unit: int) -> tuple[int, int, int, int]:
    """The arguments for the scripts. Rounded against the spender, except for the lower bound `unsent`."""
    return math.ceil(holding.total / unit), math.ceil(holding.spent / unit), holding.unsent // unit, holding.as_of
