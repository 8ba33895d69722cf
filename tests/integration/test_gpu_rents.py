"""A start records the GPUs' cost from then on: editing the price or switching an engine off changes no past hour."""

from pathlib import Path

import pytest

from gateway.clock import now_us
from gateway.composition.deployment import load_deployment
from gateway.composition.wiring import open_gateway
from gateway.config.home import Home
from gateway.instants import HOUR_US
from tests.homes import new_home

pytestmark = pytest.mark.integration

CENT = 10**10


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return new_home(tmp_path)


async def start_with(home: Home, old: str, new: str) -> list[tuple[int, int | None]]:
    """(hour from which it holds, price) of each record, after one start and stop with an edited file."""
    home.config_file.write_text(home.config_file.read_text("utf-8").replace(old, new, 1), "utf-8")
    gateway = await open_gateway(load_deployment(home, environ={}))
    await gateway.start()
    found = [(rent.from_hour, rent.hour_pico_usd) for rent in await gateway.stores.rents.rents()]
    await gateway.stop()
    return found


async def test_a_start_records_what_changed_since_the_last_one(home: Home) -> None:
    assert await start_with(home, "", "") == [(0, 10 * CENT)]
    before = now_us() // HOUR_US
    first, second = await start_with(home, 'gpu_hour_usd: "0.10"', 'gpu_hour_usd: "0.25"')
    assert first == (0, 10 * CENT), "what was before stays as it was"
    assert second[1] == 25 * CENT
    assert before <= second[0] <= now_us() // HOUR_US
    assert (await start_with(home, "is_enabled: true", "is_enabled: false"))[-1][1] is None
