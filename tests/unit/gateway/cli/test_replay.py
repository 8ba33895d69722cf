"""`breakeven replay` over the demonstration's month."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gateway.cli import build
from gateway.cli.state import open_state
from gateway.instants import DAY_US, microseconds
from gateway.storage.retention import apply_retention
from tests.unit.gateway.cli.conftest import NOW


def test_a_replay_names_the_requests_of_which_only_sums_are_left(month: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.cli.replay.now_us", lambda: microseconds(NOW))
    whole = replayed(month)
    assert whole["requests"] > 0
    assert not any("retention" in note for note in whole["notes"])
    asyncio.run(forget(days=10))
    rest = replayed(month)
    deleted = whole["requests"] - rest["requests"]
    assert 0 < deleted < whole["requests"]
    assert any(note.startswith(f"{deleted} requests of this time cannot be decided again") for note in rest["notes"])


def replayed(month: Path) -> dict[str, Any]:
    words = ["replay", "--rules", str(month / "rules.yaml"), "--days", "31", "--json"]
    result = CliRunner().invoke(build("replay"), words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


async def forget(*, days: int) -> None:
    async with open_state() as state:
        await apply_retention(state.database, requests_days=days, bodies_days=days, now_us=microseconds(NOW) + DAY_US)
