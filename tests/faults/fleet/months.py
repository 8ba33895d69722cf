"""A budget of a month begins anew with the next one: tests of one do not run across its end."""

import asyncio
from datetime import UTC, datetime, timedelta


async def until_a_month_has(seconds: float) -> None:
    """So much of it left."""
    while datetime.now(UTC).month != (datetime.now(UTC) + timedelta(seconds=seconds)).month:
        await asyncio.sleep(1)
