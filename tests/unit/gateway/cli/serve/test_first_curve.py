"""A first start goes on, whatever comes of measuring the engine."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx
import pytest
from rich.console import Console

from gateway.cli.serve.first_curve import first_curve
from gateway.config.engine_curve import ASSUMED, CurveFile


async def measured() -> CurveFile:
    return ASSUMED


async def lost() -> CurveFile:
    raise httpx.ConnectError("the engine left")


async def test_it_is_measured_once(tmp_path: Path) -> None:
    file, console = tmp_path / "curve.json", Console(record=True)
    assert await first_curve(file, measured, console) is not None
    assert file.exists()
    assert await first_curve(file, lost, console) is None
    assert "no curve" not in console.export_text()


@pytest.mark.parametrize(
    ("measure", "folder", "why"),
    [(lost, ".", "the engine left"), (measured, "no-such-folder", "cannot write")],
)
async def test_where_none_can_be_had_it_says_why_and_goes_on(
    tmp_path: Path, measure: Callable[[], Awaitable[CurveFile]], folder: str, why: str
) -> None:
    console = Console(record=True, width=300)
    assert await first_curve(tmp_path / folder / "curve.json", measure, console) is None
    assert why in console.export_text()
