"""A monthly budget starts anew with each month, so its tests must not run across the end of one."""

import asyncio
from datetime import UTC, datetime, timedelta


async def until_a_month_has(seconds: float) -> None:
    """Waits for the next month if less than `seconds` of this one are left."""
    while datetime.now(UTC).month != (datetime.now(UTC) + timedelta(seconds=seconds)).month:
        await asyncio.sleep(1)
