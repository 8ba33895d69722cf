"""The Idempotency-Key header over a real socket: a hundred equal calls make one upstream call and one entry."""

import asyncio
from collections.abc import AsyncGenerator

import httpx
import pytest

from backends.scripted import Outcome, follow
from tests.integration.service import MESSAGES, Service
from tests.live_server import serving
from tests.rig import KEY, Rig

pytestmark = pytest.mark.integration
BODY = {"model": "auto", "messages": MESSAGES}
HEADERS = {"authorization": f"Bearer {KEY}", "idempotency-key": "order-7"}


@pytest.fixture
async def service() -> AsyncGenerator[Service]:
    slow = follow([Outcome(first_piece_delay_seconds=0.05)])
    made = Service(Rig(one=slow))
    async with serving(made.app) as url:
        made.url = url
        yield made


@pytest.mark.parametrize("is_stream", [False, True])
async def test_a_hundred_equal_calls_make_one_upstream_call_and_one_entry(service: Service, is_stream: bool) -> None:
    limits = httpx.Limits(max_connections=100)
    async with httpx.AsyncClient(base_url=service.url, headers=HEADERS, limits=limits, timeout=60) as client:
        body = {**BODY, "stream": is_stream}
        answers = await asyncio.gather(*(client.post("/v1/chat/completions", json=body) for _ in range(100)))
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.content for answer in answers}) == 1
    assert sum("idempotent-replayed" in answer.headers for answer in answers) == 99
    assert len({answer.headers["x-breakeven-request-id"] for answer in answers}) == 1
    assert len(service.rig.one.calls) == 1
    assert service.rig.entry.status == "completed"


async def test_another_body_or_endpoint_under_the_same_key_is_422(service: Service) -> None:
    async with httpx.AsyncClient(base_url=service.url, headers=HEADERS, timeout=60) as client:
        assert (await client.post("/v1/chat/completions", json=BODY)).status_code == 200
        other = await client.post("/v1/chat/completions", json={**BODY, "temperature": 1})
        assert (other.status_code, other.json()["error"]["code"]) == (422, "idempotency_mismatch")
        elsewhere = await client.post("/v1/messages", json={**BODY, "max_tokens": 5})
        assert (elsewhere.status_code, elsewhere.json()["type"]) == (422, "error")


async def test_another_body_while_the_first_is_served_is_422_and_hears_nothing_of_it(service: Service) -> None:
    may_speak = asyncio.Event()

    async def wait(seconds: float) -> None:
        del seconds
        await may_speak.wait()

    service.rig.one._sleep = wait  # pyright: ignore[reportPrivateUsage]
    async with httpx.AsyncClient(base_url=service.url, headers=HEADERS, timeout=60) as client:
        first = asyncio.create_task(client.post("/v1/chat/completions", json=BODY))
        while not service.rig.one.calls:
            await asyncio.sleep(0.01)
        other = await client.post("/v1/chat/completions", json={**BODY, "temperature": 1})
        assert (other.status_code, other.json()["error"]["code"]) == (422, "idempotency_mismatch")
        may_speak.set()
        assert (await first).status_code == 200


async def test_a_broken_stream_is_served_anew(service: Service) -> None:
    broken = Outcome(fault="truncated", fault_after_pieces=2)
    service.rig.one._script = follow([broken, Outcome()])  # pyright: ignore[reportPrivateUsage]
    async with httpx.AsyncClient(base_url=service.url, headers=HEADERS, timeout=60) as client:
        first, second = [await client.post("/v1/chat/completions", json={**BODY, "stream": True}) for _ in range(2)]
    assert b"[DONE]" not in first.content
    assert "idempotent-replayed" not in second.headers
    assert second.content.endswith(b"data: [DONE]\n\n")


async def test_messages_are_replayed_in_their_own_format(service: Service) -> None:
    async with httpx.AsyncClient(base_url=service.url, headers=HEADERS, timeout=60) as client:
        answers = [await client.post("/v1/messages", json={**BODY, "max_tokens": 50}) for _ in range(2)]
    assert answers[0].content == answers[1].content
    assert answers[1].json()["content"][0]["text"] == "Hello, world."
    assert len(service.rig.one.calls) == 1


async def test_a_failed_request_is_served_anew(service: Service) -> None:
    service.rig.one._script = follow([Outcome(fault="rejected"), Outcome()])  # pyright: ignore[reportPrivateUsage]
    async with httpx.AsyncClient(base_url=service.url, headers=HEADERS, timeout=60) as client:
        assert (await client.post("/v1/chat/completions", json=BODY)).status_code == 400
        assert (await client.post("/v1/chat/completions", json=BODY)).status_code == 200


async def test_a_stranger_learns_nothing_from_a_key(service: Service) -> None:
    async with httpx.AsyncClient(base_url=service.url, headers=HEADERS, timeout=60) as client:
        assert (await client.post("/v1/chat/completions", json=BODY)).status_code == 200
        stranger = await client.post("/v1/chat/completions", json=BODY, headers={"authorization": "Bearer bk-none"})
        assert stranger.status_code == 401
