"""A gateway whose clock jumps deletes nothing that is not old enough."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from gateway.batches.values import StoredFile
from gateway.clock import PatientClock, now_us
from gateway.composition.deployment import load_deployment
from gateway.composition.wiring import open_gateway
from gateway.instants import DAY_US
from gateway.ledger.batch import Batch
from tests.homes import new_home
from tests.unit.gateway.ledger.builders import make_entry, make_intent

pytestmark = pytest.mark.integration


async def _parts() -> AsyncGenerator[bytes]:
    yield b"{}"


async def test_a_clock_that_is_months_ahead_for_an_hour_forgets_nothing(tmp_path: Path) -> None:
    home = new_home(tmp_path)
    with home.config_file.open("a", encoding="utf-8") as file:
        file.write("\nretention: {requests_days: 30}\n")
    gateway = await open_gateway(load_deployment(home, environ={}))
    await gateway.start()
    try:
        old, young = (
            make_intent(number, accepted_at_us=now_us() - days * DAY_US) for number, days in ((1, 200), (2, 91))
        )
        await gateway.sink.insert(Batch.of([make_entry(1, intent=old), make_entry(2, intent=young)]))
        file = StoredFile("file-1", "team red", "batch", "in.jsonl", 2, now_us(), now_us() - DAY_US)
        await gateway.stores.files.write(file, _parts(), most_bytes=10)
        steps_us = iter([now_us() - 90 * DAY_US, now_us()])
        gateway.retention_clock = PatientClock(
            lambda: next(steps_us)
        )  # our clock is 90 days ahead of the first time it saw
        await gateway.forget()
        assert await gateway.stores.files.get("team red", "file-1") is not None
        assert await gateway.stores.ledger.get(young.request_id) is not None
        assert await gateway.stores.ledger.get(old.request_id) is None
    finally:
        await gateway.stop()
