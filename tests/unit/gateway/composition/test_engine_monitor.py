"""What is logged about a backend's health, which is changes only, and how an engine's curve is measured."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from backends.protocol import BackendHealth
from backends.scripted import Outcome, ScriptedBackend
from gateway.composition.engine_monitor import measure_curve, sweep_up_to, watch_health
from gateway.config.engine_curve import CurveFile
from gateway.errors import StateError
from gateway.upstreams.load import Upstreams
from gateway.upstreams.starting import Starting
from tests.live_server import serving


class Reporting(ScriptedBackend):
    """A backend that reports its health as listed, and then ends the watch."""

    def __init__(self, reports: Sequence[bool]) -> None:
        super().__init__("local", lambda _: Outcome())
        self._reports = iter(reports)

    async def health(self) -> BackendHealth:
        for is_healthy in self._reports:
            return BackendHealth(is_healthy)
        raise asyncio.CancelledError


@pytest.mark.parametrize(
    ("reports", "starting", "said"),
    [
        ([False, False, True, True], ["local"], []),
        ([False, False, True, True], [], ["backend local is down", "backend local is up"]),
        ([True, False, False, True], ["local"], ["backend local is down", "backend local is up"]),
    ],
)
async def test_what_changes_is_news_unless_it_is_an_engine_that_starts(
    reports: list[bool], starting: list[str], said: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    upstreams = Upstreams(starting=Starting(starting))
    with pytest.raises(asyncio.CancelledError):
        await watch_health({"local": Reporting(reports)}, upstreams, every_seconds=0)
    assert [record.getMessage() for record in caplog.records] == said


SPEEDS = {"decode_tokens_per_second": 10.0, "prefill_tokens_per_second": 500.0}
READING = {"x_breakeven": {**SPEEDS, "decode_tokens_per_second": 1.0, "mean_batch_size": 1.0}}
TIMED = {"x_breakeven": {**SPEEDS, "mean_batch_size": 1.4}}


async def measured(answer: Any, status: int = 200, *, health: Any = None) -> CurveFile:
    """The curve of an engine that always answers this, once it has read a prompt."""
    read: set[str] = set()

    async def chat(request: Request) -> JSONResponse:
        prompt = (await request.json())["cache_salt"]
        is_read = prompt in read
        read.add(prompt)
        return JSONResponse(answer if is_read or answer is not TIMED else READING, status)

    async def places(_: Request) -> JSONResponse:
        return JSONResponse(health or {"max_concurrency": 2})

    routes = [Route("/v1/chat/completions", chat, methods=["POST"]), Route("/health", places)]
    async with serving(Starlette(routes=routes)) as url:
        return await measure_curve(f"{url}/v1", "m", sweep=(1, 2))


async def test_who_ran_together_is_counted_and_no_proxy_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    curve = await measured(TIMED)
    assert curve.points == [(1, 10.0), (1, 10.0)], "of two, one had ended before the other came"


@pytest.mark.parametrize(
    "answer",
    [
        [],
        {"choices": []},  # another server's
        {"x_breakeven": SPEEDS},
        {"x_breakeven": {**TIMED["x_breakeven"], "decode_tokens_per_second": None}},
        {"x_breakeven": {**TIMED["x_breakeven"], "prefill_tokens_per_second": 0.0}},
    ],
)
async def test_a_server_without_the_engines_timings_is_told_in_a_sentence(answer: Any) -> None:
    with pytest.raises(StateError, match="/v1/chat/completions does not report its timings"):
        await measured(answer)


@pytest.mark.parametrize(
    ("most", "swept"), [(3, [1, 2, 3]), (8, [1, 2, 4, 8]), (100, [1, 4, 16, 64, 100]), (256, [1, 4, 16, 64, 256])]
)
def test_an_engine_is_measured_up_to_as_many_as_it_answers_at_once(most: int, swept: list[int]) -> None:
    """With 256 places it was measured up to 4, and a GPU that is never used beyond seldom pays."""
    assert sweep_up_to(most) == swept


async def test_more_at_once_than_an_engine_answers_is_not_measured() -> None:
    """Those that waited counted as if they had run beside the others: 32 at 8 places were four times as fast."""
    with pytest.raises(StateError, match="answers 1 requests at once: choose a --concurrency of up to 1"):
        await measured(TIMED, health={"max_concurrency": 1})
    with pytest.raises(StateError, match="/health does not say how many requests"):
        await measured(TIMED, health=["ok"])


async def test_what_an_engine_refuses_is_told_in_its_words() -> None:
    """More requests at once than it takes, for example: it was told as one that does not run."""
    with pytest.raises(StateError, match=r"answered 429: .*the queue is full"):
        await measured({"error": {"message": "the queue is full"}}, 429)
