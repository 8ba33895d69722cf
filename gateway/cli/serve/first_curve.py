"""The bundled engine's throughput, measured once, at the first start."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx
from rich.console import Console

from gateway.config.engine_curve import CurveFile, MeasuredEngine, save_engine_curve
from gateway.economics.errors import EconomicsError
from gateway.errors import StateError


async def first_curve(
    file: Path, measure: Callable[[], Awaitable[CurveFile]], console: Console
) -> MeasuredEngine | None:
    """None if there is one already, or if it cannot be measured, which is printed and does not stop the start."""
    if await asyncio.to_thread(file.exists):
        return None
    console.print("Engine    measuring its throughput once, for routing and break-even (about 20 s)")
    try:
        return save_engine_curve(file, await measure())
    except (httpx.HTTPError, StateError, EconomicsError) as error:
        console.print(
            f"Engine    could not be measured ({error}); figures are assumed until `breakeven bench engine` has run"
        )
        return None
