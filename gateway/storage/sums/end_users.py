"""What budgets count of each end user of a key: read for the accounts that are asked for, verified, added up again and
forgotten."""

from collections import defaultdict
from collections.abc import Collection
from typing import Any, Final

from sqlalchemy import ColumnElement, Select, case, delete, func, literal, literal_column, select, text, union_all
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from gateway.instants import DAY_US, microseconds
from gateway.ledger.entry import Status
from gateway.limits.counters import Account
from gateway.limits.values import window_end, window_of_id, window_start
from gateway.storage.sums.corrections import CORRECTED_COST
from gateway.storage.sums.end_user_days import MOST
from gateway.storage.tables.books import circumstances, dimensions, end_user_days, entries
from gateway.storage.tables.columns import PAID_COLUMNS

CHUNK: Final = 500
LATE_US: Final = 2 * DAY_US
"""How long after a month's end its days are kept: requests of it may still be under way."""
_paid: ColumnElement[int] = sum((func.coalesce(entries.c[name], 0) for name in PAID_COLUMNS), literal(0))
IS_ORPHANED: Final = dimensions.c.status == Status.orphaned.value
COUNTED: ColumnElement[int] = case(
    (IS_ORPHANED & circumstances.c.is_exact, _paid),
    (IS_ORPHANED, func.coalesce(entries.c.upper_pico_usd, 0)),
    else_=CORRECTED_COST,
)
"""What budgets count of a request: see gateway.limits.spending.counted_pico_usd."""


class EndUserDays:
    """Called by Counters; see gateway.limits.counters.AccountBooks."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def __call__(self, accounts: Collection[Account]) -> dict[Account, int]:
        together: dict[tuple[str, str], dict[str, Account]] = defaultdict(dict)
        for account in accounts:
            key_id, end_user = account.key_and_end_user
            together[key_id, account.window][end_user] = account
        spent = dict.fromkeys(accounts, 0)
        async with self._engine.connect() as connection:
            for (key_id, window), of_end_users in together.items():
                names = list(of_end_users)
                for start in range(0, len(names), CHUNK):
                    found = await connection.execute(_sums(key_id, window, names[start : start + CHUNK]))
                    spent |= {of_end_users[end_user]: (int(high) << 32) + int(low) for end_user, high, low in found}
        return spent


async def forget_end_users_days(connection: AsyncConnection, end_user: str) -> None:
    """Locks the rows first, in the order of every writer."""
    theirs = end_user_days.c.end_user == end_user
    keys = (end_user_days.c.key_id, end_user_days.c.end_user, end_user_days.c.day)
    await connection.execute(select(*keys).where(theirs).order_by(*keys).with_for_update())
    await connection.execute(delete(end_user_days).where(theirs))


async def forget_ended_days(connection: AsyncConnection, now_us: int) -> None:
    """Deletes the days of months that are over."""
    await connection.execute(delete(end_user_days).where(end_user_days.c.day < first_day_kept(now_us)))


def first_day_kept(now_us: int) -> int:
    """Since the epoch."""
    return microseconds(window_start("month", now_us - LATE_US)) // DAY_US


def mismatch_of(day: int) -> Select[Any]:
    """One row: what the day's requests and corrections come to, what is said here, and how many end users of a key
    differ."""
    requests = _requests_of(day, literal(0).label("say"))
    here = select(end_user_days.c.key_id, end_user_days.c.end_user, literal(0), end_user_days.c.counted_pico_usd)
    both = union_all(requests, here.where(end_user_days.c.day == day)).subquery()
    come_to, say = _at_most(func.sum(both.c.come_to)).label("come_to"), func.sum(both.c.say).label("say")
    each = select(come_to, say).group_by(both.c.key_id, both.c.end_user).subquery()
    differ = func.sum(case((each.c.come_to != each.c.say, 1), else_=0))
    return select(*(func.coalesce(one, 0) for one in (func.sum(each.c.come_to), func.sum(each.c.say), differ)))


async def add_up_again(connection: AsyncConnection, day: int) -> None:
    """In a write transaction. Whoever books is done with this table before the requests are read, or waits to add to
    what they come to."""
    if connection.dialect.name == "postgresql":
        await connection.execute(text("LOCK TABLE end_user_days IN EXCLUSIVE MODE"))
    await connection.execute(delete(end_user_days).where(end_user_days.c.day == day))
    each = _requests_of(day).subquery()
    come_to = func.sum(each.c.come_to)
    rows = select(each.c.key_id, each.c.end_user, literal(day), _at_most(come_to))
    rows = rows.group_by(each.c.key_id, each.c.end_user).having(come_to != 0)
    await connection.execute(end_user_days.insert().from_select([*end_user_days.c.keys()], rows))


def _requests_of(day: int, *more: ColumnElement[int]) -> Select[Any]:
    """Key, end user and what budgets count of each request."""
    return (
        select(dimensions.c.key_id, entries.c.end_user, COUNTED.label("come_to"), *more)
        .join_from(entries, dimensions, dimensions.c.id == entries.c.dimension_id)
        .join(circumstances, circumstances.c.id == entries.c.circumstance_id)
        .where(entries.c.end_user.is_not(None))
        .where(entries.c.accepted_at_us >= day * DAY_US, entries.c.accepted_at_us < (day + 1) * DAY_US)
    )


def _at_most(total: ColumnElement[int]) -> ColumnElement[int]:
    return case((total > MOST, MOST), else_=total)


def _sums(key_id: str, window: str, end_users: list[str]) -> Select[*tuple[Any, ...]]:
    """End user, and the upper and lower half of the sum: SQLite's fails beyond 64 bits."""
    kind, began_us = window_of_id(window)
    ends_us = microseconds(window_end(kind, began_us))
    wanted = [end_user_days.c.day >= began_us // DAY_US, end_user_days.c.key_id == key_id]
    wanted += [end_user_days.c.end_user.in_(end_users)]
    if ends_us is not None:
        wanted.append(end_user_days.c.day < ends_us // DAY_US)
    counted = end_user_days.c.counted_pico_usd
    halves = [func.sum(counted.op(does)(literal_column(by))) for does, by in ((">>", "32"), ("&", str(0xFFFFFFFF)))]
    return select(end_user_days.c.end_user, *halves).where(*wanted).group_by(end_user_days.c.end_user)
