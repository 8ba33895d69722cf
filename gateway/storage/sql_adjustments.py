"""Corrections of what was booked: rows are only added, and the hourly sums take them in the same transaction."""

import time
from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.pricing.reprice import Booked
from gateway.storage.database import writing
from gateway.storage.interned import insert_or_ignore
from gateway.storage.rollup import HOUR_US, SKETCHES, SUMS
from gateway.storage.sql_audit import append_audit
from gateway.storage.sql_ledger import add_to_rollups
from gateway.storage.tables import adjustments, entries
from gateway.stores import Adjustment

CHUNK = 500


class SqlAdjustments:
    """Books corrections."""

    def __init__(self, engine: AsyncEngine, *, now_us: Callable[[], int] = lambda: time.time_ns() // 1000) -> None:
        self._engine = engine
        self._now_us = now_us

    async def book(self, batch: Sequence[Adjustment], *, author: str) -> int:
        """One transaction. Those booked before, or of requests that are not there, change nothing; returns how many."""
        at_us = self._now_us()
        booked = amount = 0
        async with writing(self._engine) as connection:
            for start in range(0, len(batch), CHUNK):
                chunk = {bytes.fromhex(one.request_id): one for one in batch[start : start + CHUNK]}
                columns = (entries.c.request_id, entries.c.accepted_at_us, entries.c.dimension_id)
                found = await connection.execute(select(*columns).where(entries.c.request_id.in_(list(chunk))))
                places = {bytes(row[0]): (row[1] // HOUR_US, row[2]) for row in found}
                rows: list[dict[str, Any]] = [
                    {
                        "at_us": at_us,
                        "hour": hour,
                        "dimension_id": dimension_id,
                        "request_id": number,
                        "kind": chunk[number].kind,
                        "reference": chunk[number].reference,
                        "amount_pico_usd": chunk[number].amount_pico_usd,
                        "reason": chunk[number].reason,
                        "author": author,
                    }
                    for number, (hour, dimension_id) in sorted(places.items())
                ]
                if not rows:
                    continue
                insert = insert_or_ignore(connection, adjustments).returning(adjustments.c.request_id)
                new = {bytes(number) for number in (await connection.execute(insert, rows)).scalars()}
                await add_to_rollups(connection, _sums([row for row in rows if row["request_id"] in new]))
                booked += len(new)
                amount += sum(row["amount_pico_usd"] for row in rows if row["request_id"] in new)
            if booked:
                await append_audit(
                    connection,
                    at_us=at_us,
                    actor=author,
                    action=f"ledger.{batch[0].kind}",
                    subject=batch[0].reference,
                    reason=batch[0].reason,
                    detail=f"{booked} requests, {amount} pico-USD",
                )
        return booked

    async def booked(self, request_ids: Sequence[str]) -> dict[str, Booked]:
        """Request id -> its price corrections so far; those without are left out."""
        found: dict[str, Booked] = {}
        columns = (adjustments.c.request_id, func.sum(adjustments.c.amount_pico_usd), func.count())
        async with self._engine.connect() as connection:
            for start in range(0, len(request_ids), CHUNK):
                wanted = [bytes.fromhex(one) for one in request_ids[start : start + CHUNK]]
                rows = await connection.execute(
                    select(*columns)
                    .where(adjustments.c.request_id.in_(wanted), adjustments.c.kind == "reprice")
                    .group_by(adjustments.c.request_id)
                )
                found |= {bytes(number).hex(): Booked(int(amount), int(count)) for number, amount, count in rows}
        return found


def _sums(rows: Sequence[dict[str, Any]]) -> dict[tuple[int, int], dict[str, Any]]:
    sums: dict[tuple[int, int], dict[str, Any]] = {}
    for row in rows:
        nothing = {**dict.fromkeys(SUMS, 0), **dict.fromkeys(SKETCHES, b"")}
        one = sums.setdefault((row["hour"], row["dimension_id"]), nothing)
        one["adjusted_requests"] += 1
        one["adjustment_pico_usd"] += row["amount_pico_usd"]
    return {key: sums[key] for key in sorted(sums)}
