"""`breakeven retention`: applies `retention` of breakeven.yaml now; `serve` does the same every hour."""

import asyncio
import json
from dataclasses import asdict

from gateway.cli.options import AsJson
from gateway.cli.state import open_state
from gateway.clock import now_us
from gateway.storage.retention import Forgotten, apply_retention


def command(as_json: AsJson = False) -> None:
    """Delete single requests and stored texts that are older than `retention` allows; every sum stays."""
    forgotten = asyncio.run(_apply())
    if as_json:
        print(json.dumps(asdict(forgotten)))
        return
    months = ", ".join(forgotten.months) or "no month is old enough"
    print(f"Single requests forgotten: {months}. Stored texts forgotten: {forgotten.bodies:,}.")


async def _apply() -> Forgotten:
    async with open_state() as state:
        kept = state.deployment.settings.retention
        return await apply_retention(
            state.database,
            requests_days=kept.requests_days,
            bodies_days=kept.bodies_days,
            now_us=now_us(),
            author="command line",
        )
