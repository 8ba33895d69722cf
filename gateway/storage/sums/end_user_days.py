"""What budgets count of each end user of a key, by day: added in the transaction of the request or the correction."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from sqlalchemy import Connection

from gateway.instants import DAY_US
from gateway.ledger.entry import Status
from gateway.money import MOST_USD, parse_usd
from gateway.storage.rows.bounded import money
from gateway.storage.rows.entry_rows import EntryRows
from gateway.storage.sums.rollup import PAID

Place = tuple[str, str, int]
"""Key, end user, UTC day since the epoch."""
MOST = parse_usd(MOST_USD)
"""The largest budget. More is not counted, as a sum must not overflow and stop the ledger."""
_ADD = (
    "INSERT INTO end_user_days (key_id, end_user, day, counted_pico_usd) VALUES ({}) ON CONFLICT (key_id, end_user, "
    "day) DO UPDATE SET counted_pico_usd = {}"
)
_STATEMENTS = {
    "postgresql": _ADD.format(
        "$1, $2, $3, $4",
        f"LEAST(CAST(end_user_days.counted_pico_usd AS numeric) + excluded.counted_pico_usd, {MOST})",
    ),
    "sqlite": _ADD.format("?, ?, ?, ?", f"MIN(end_user_days.counted_pico_usd + excluded.counted_pico_usd, {MOST})"),
}


def place_of(key_id: str, end_user: str, accepted_at_us: int) -> Place:
    return key_id, end_user, accepted_at_us // DAY_US


def counted_by_place(rows: Iterable[EntryRows]) -> dict[Place, int]:
    """What these new requests add."""
    added: dict[Place, int] = defaultdict(int)
    for one in rows:
        if (end_user := one.row[-1]) is not None:
            intent = one.entry.intent
            added[place_of(one.dimension.key_id, end_user, intent.accepted_at_us)] += _counted(one)
    return added


def add_to_end_users(connection: Connection, added: Mapping[Place, int]) -> None:
    """In the order in which every writer locks the rows."""
    rows = [(*place, min(added[place], MOST)) for place in sorted(added) if added[place]]
    if rows:
        connection.exec_driver_sql(_STATEMENTS[connection.dialect.name], rows)


def _counted(one: EntryRows) -> int:
    if one.entry.status is Status.orphaned:
        return money(one.entry.cost_upper_pico_usd) or 0
    return sum(filter(None, one.figures[PAID]))
