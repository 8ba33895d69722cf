"""Computes the largest figures of hours and days booked before schema 0019 introduced them, hour by hour from the
oldest.

Until then queries give the same results, but more slowly: see ranked_hours.py.
"""

import json

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from gateway.instants import HOUR_US
from gateway.storage.database import get_out_of_the_way, writing
from gateway.storage.sums.rollup import DAY_HOURS

LEFT = "hours_to_rank"
"""The name in `state` under which the migration stored the first and last hour still to be ranked."""
PAID = ("input", "cached_input", "cache_write", "output", "other", "compute")
COST = " + ".join(f"coalesce(entries.{name}_pico_usd, 0)" for name in PAID)
RANK_HOUR = f"""
    UPDATE hourly SET ranked = requests + adjusted_requests, largest_pico_usd = found.pico_usd,
        largest_total_us = found.total_us, largest_first_token_us = found.first_token_us
    FROM (
        SELECT entries.dimension_id AS of_dimension, max({COST} + coalesce(corrections.amount, 0)) AS pico_usd,
            max(entries.total_us) AS total_us, max(coalesce(entries.time_to_first_token_us, 0)) AS first_token_us
        FROM entries LEFT JOIN (
            SELECT request_id, sum(amount_pico_usd) AS amount FROM adjustments
            WHERE hour = :hour AND request_id IS NOT NULL GROUP BY 1
        ) AS corrections ON corrections.request_id = entries.request_id
        WHERE entries.accepted_at_us >= :begins_us AND entries.accepted_at_us < :ends_us GROUP BY 1
    ) AS found WHERE hourly.hour = :hour AND hourly.dimension_id = found.of_dimension
"""
# Requests deleted by retention cannot be found, so they need no rank.
RANK_FORGOTTEN = """
    UPDATE hourly SET ranked = requests + adjusted_requests
    WHERE hour = :hour AND ranked <> requests + adjusted_requests
"""
# `ranked` is the sum of the hours', which may be incomplete: an older replica may have added requests since.
RANK_DAY = """
    UPDATE daily SET ranked = found.ranked, largest_pico_usd = found.pico_usd, largest_total_us = found.total_us,
        largest_first_token_us = found.first_token_us
    FROM (
        SELECT dimension_id AS of_dimension, sum(ranked) AS ranked, max(largest_pico_usd) AS pico_usd,
            max(largest_total_us) AS total_us, max(largest_first_token_us) AS first_token_us
        FROM hourly WHERE hour >= :first AND hour < :after GROUP BY 1
    ) AS found WHERE daily.day = :day AND daily.dimension_id = found.of_dimension
"""


async def rank_older_hours(engine: AsyncEngine) -> None:
    """Ranks all remaining hours, each in a transaction of its own, so that a killed process continues where it was."""
    is_left = True

    async def rank() -> None:
        nonlocal is_left
        is_left = await _rank_next(engine)

    while is_left:
        await get_out_of_the_way(rank, "ranking older hours")


async def _rank_next(engine: AsyncEngine) -> bool:
    """Ranks the next hour; returns whether there may be more."""
    async with writing(engine) as connection:
        if engine.dialect.name == "postgresql":
            # If another process changes a row meanwhile, this transaction fails and is retried.
            await connection.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"))
        value = (await connection.execute(text("SELECT value FROM state WHERE name = :name"), {"name": LEFT})).scalar()
        if value is None:
            return False
        first, last = json.loads(value)
        hour = await _hour_from(connection, first, last)
        if hour is None:
            await connection.execute(text("DELETE FROM state WHERE name = :name"), {"name": LEFT})
            return False
        times = {"hour": hour, "begins_us": hour * HOUR_US, "ends_us": (hour + 1) * HOUR_US}
        await connection.execute(text(RANK_HOUR), times)
        await connection.execute(text(RANK_FORGOTTEN), {"hour": hour})
        day, following = hour // DAY_HOURS, await _hour_from(connection, hour + 1, last)
        if following is None or following // DAY_HOURS != day:
            days = {"day": day, "first": day * DAY_HOURS, "after": (day + 1) * DAY_HOURS}
            await connection.execute(text(RANK_DAY), days)
        left = {"name": LEFT, "value": json.dumps([hour + 1, last])}
        await connection.execute(text("UPDATE state SET value = :value WHERE name = :name"), left)
        return True


async def _hour_from(connection: AsyncConnection, first: int, last: int) -> int | None:
    """The first hour in this range that has a row."""
    asked = text("SELECT min(hour) FROM hourly WHERE hour >= :first AND hour <= :last")
    return (await connection.execute(asked, {"first": first, "last": last})).scalar()
