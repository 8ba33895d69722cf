"""What is said of a backend's health: news, and nothing when it comes up for the first time."""

import asyncio
from collections.abc import Sequence

import pytest

from backends.protocol import BackendHealth
from backends.scripted import Outcome, ScriptedBackend
from gateway.composition.engine_monitor import watch_health
from gateway.upstreams.load import Upstreams


class Reporting(ScriptedBackend):
    """Healthy or not, as listed; then the watch is over."""

    def __init__(self, reports: Sequence[bool]) -> None:
        super().__init__("local", lambda _: Outcome())
        self._reports = iter(reports)

    async def health(self) -> BackendHealth:
        for is_healthy in self._reports:
            return BackendHealth(is_healthy)
        raise asyncio.CancelledError


@pytest.mark.parametrize(
    ("reports", "said"),
    [
        ([False, False, True, True], []),
        ([True, False, False, True], ["backend local is down", "backend local is up"]),
    ],
)
async def test_only_what_changed_after_it_was_up_is_news(
    reports: list[bool], said: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(asyncio.CancelledError):
        await watch_health({"local": Reporting(reports)}, Upstreams(), every_seconds=0)
    assert [record.getMessage() for record in caplog.records] == said
