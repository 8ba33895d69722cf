"""Concurrent calls: refused beyond the limit, counted from before the body is read, and never counted for ever."""

import asyncio
import json
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from backends.scripted import Fault, Outcome, Script
from backends.translating import TranslatingBackend
from gateway.access.keys import KeyRecord
from gateway.api.app import Root, build_fastapi
from gateway.api.shedding import Load, Shedding
from gateway.api.token_path import credential_of
from gateway.api.under_way import UnderWay
from gateway.kept_answers.idempotency import Idempotency
from gateway.kept_answers.kept_responses import KeptResponses
from gateway.kept_answers.memory_idempotency import MemoryIdempotency
from gateway.kept_answers.memory_turns import MemoryTurns
from gateway.limits.admission import Admission
from gateway.limits.counters import Places
from gateway.limits.values import Rates, SharedLimits, parse_limits
from tests.rig import KEY, Rig

CHATS = "/v1/chat/completions"
BODY = json.dumps({"model": "auto", "messages": [{"role": "user", "content": "hello"}]}).encode()
STREAM = json.dumps({"model": "auto", "messages": [{"role": "user", "content": "hello"}], "stream": True}).encode()
FAULTS: tuple[Fault | None, ...] = (None, None, None, "unavailable", "garbage", "truncated", "rejected")
SEEDS = (1, 2)


class Calls:
    """A pipeline behind the limiting middleware; `asked` counts lookups of a key."""

    def __init__(self, rig: Rig, *, body_seconds: float = 3600.0) -> None:
        self.rig = rig
        self.asked = 0
        keys = rig.pipeline.keys
        self.idempotency = Idempotency(MemoryIdempotency(), lambda given: keys.authenticate(given, 0).id)
        self.load = Load()
        root = Root(
            rig.pipeline,
            build_fastapi(),
            max_body_bytes=1_000_000,
            idempotency=self.idempotency,
            load=self.load,
        )
        self.app: ASGIApp = Shedding(
            UnderWay(root, rig.pipeline.admission, self._key_of),
            self.load,
            lambda scope, came: 1 << 20,
            whose=lambda scope: "key-1",
            max_requests=10_000,
            max_buffered_bytes=1 << 30,
            body_seconds=body_seconds,
        )

    def _key_of(self, scope: Scope) -> KeyRecord:
        self.asked += 1
        return self.rig.pipeline.keys.authenticate(credential_of(scope["headers"]), 0)

    async def is_free(self, *buckets: str) -> bool:
        """Whether all places are free."""
        counters = self.rig.pipeline.admission.treasury.counters
        full = await counters.enter("probe", [Places(bucket, 1) for bucket in buckets])
        counters.leave("probe")
        return full is None


class Call:
    """One call. Its body arrives as `parts`, then nothing until it disconnects (`goes`); `hears` records what it is
    sent."""

    def __init__(self, calls: Calls, *parts: bytes, path: str = CHATS, ends: bool = True, **headers: str) -> None:
        given = {"authorization": f"Bearer {KEY}", **{name.replace("_", "-"): text for name, text in headers.items()}}
        self.scope: Scope = {
            "type": "http",
            "method": "POST",
            "path": path,
            "headers": [(name.encode(), text.encode()) for name, text in given.items()],
        }
        self.sent: list[Message] = []
        self.hears: Callable[[Message], Awaitable[None]] | None = None
        self._parts = list(parts)
        self._ends = ends
        self._gone = asyncio.Event()
        self.task = asyncio.ensure_future(calls.app(self.scope, self._receive, self._send))

    def go(self) -> None:
        self._gone.set()

    async def _receive(self) -> Message:
        if self._parts:
            part = self._parts.pop(0)
            return {"type": "http.request", "body": part, "more_body": bool(self._parts) or not self._ends}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        self.sent.append(message)
        if self.hears is not None:
            await self.hears(message)

    @property
    def status(self) -> int:
        return self.sent[0]["status"]

    @property
    def headers(self) -> dict[bytes, bytes]:
        return dict(self.sent[0]["headers"])

    @property
    def error(self) -> dict[str, Any]:
        return json.loads(self.sent[-1]["body"])["error"]


def bounded(**limits: int) -> Admission:
    return Admission(limits={"key-1": parse_limits(limits)})


async def turns(times: int = 50) -> None:
    for _ in range(times):
        await asyncio.sleep(0)


class Paused:
    """Every upstream waits until released."""

    def __init__(self, calls: Calls) -> None:
        self.go = asyncio.Event()
        calls.rig.one._sleep = self._wait  # pyright: ignore[reportPrivateUsage]

    async def _wait(self, seconds: float) -> None:
        del seconds
        await self.go.wait()


@pytest.mark.parametrize("body", [BODY, STREAM], ids=["whole", "stream"])
async def test_beyond_the_limit_a_call_is_refused_and_told_what_to_do(body: bytes) -> None:
    calls = Calls(Rig(admission=bounded(max_parallel_requests=2)))
    paused = Paused(calls)
    running = [Call(calls, body) for _ in range(2)]
    await turns()
    refused = Call(calls, body)
    await refused.task
    assert (refused.status, refused.headers[b"retry-after"]) == (429, b"1")
    assert (refused.error["type"], refused.error["code"]) == ("rate_limit_error", "rate_limit_exceeded")
    assert refused.error["message"] == (
        "This key already has 2 requests under way, the most it may have at once (max_parallel_requests). Try again "
        "when one has ended, send fewer at once, or have the limit raised."
    )
    paused.go.set()
    await asyncio.gather(*(one.task for one in running))
    assert [one.status for one in running] == [200, 200]
    assert len(calls.rig.ledger.entries) == 2, "what was refused is in no books"
    again = Call(calls, body)
    await again.task
    assert again.status == 200


async def test_anthropic_clients_are_refused_in_their_shape() -> None:
    calls = Calls(Rig(admission=bounded(max_parallel_requests=1)))
    paused = Paused(calls)
    running = Call(calls, STREAM)
    await turns()
    refused = Call(calls, b"{}", path="/v1/messages")
    await refused.task
    body = json.loads(refused.sent[-1]["body"])
    assert (refused.status, body["type"], body["error"]["type"]) == (429, "error", "rate_limit_error")
    paused.go.set()
    await running.task


async def test_a_team_is_counted_over_all_its_keys() -> None:
    admission = Admission(shared=SharedLimits(teams={"red": Rates(max_parallel_requests=1)}))
    rig = Rig(admission=admission)
    rig.add_key("bk-mate", KeyRecord("key-3", "mate", "app", team="red"))
    rig.add_key("bk-other", KeyRecord("key-4", "other", "app", team="blue"))
    calls = Calls(rig)
    paused = Paused(calls)
    running = Call(calls, STREAM)
    await turns()
    refused = Call(calls, BODY, authorization="Bearer bk-mate")
    await refused.task
    assert refused.status == 429
    assert refused.error["message"].startswith("The team 'red' already has 1 request under way")
    other = Call(calls, BODY, authorization="Bearer bk-other")
    paused.go.set()
    await asyncio.gather(running.task, other.task)
    assert (running.status, other.status) == (200, 200)


async def test_a_body_that_comes_slowly_is_counted_before_it_is_there() -> None:
    calls = Calls(Rig(admission=bounded(max_parallel_requests=1)))
    slow = Call(calls, b"{", ends=False)
    await turns()
    refused = Call(calls, BODY)
    await refused.task
    assert refused.status == 429
    slow.go()
    await slow.task
    assert not slow.sent
    assert await calls.is_free("key:key-1")


async def test_a_body_that_stops_coming_keeps_no_place() -> None:
    calls = Calls(Rig(admission=bounded(max_parallel_requests=1)), body_seconds=0.01)
    slow = Call(calls, b"{", ends=False)
    await slow.task
    assert slow.status == 408
    assert await calls.is_free("key:key-1")


async def test_a_stranger_is_no_limited_key_and_takes_no_place() -> None:
    calls = Calls(Rig(admission=bounded(max_parallel_requests=1)))
    stranger = Call(calls, BODY, authorization="Bearer bk-none")
    await stranger.task
    assert stranger.status == 401
    assert await calls.is_free("key:key-1")


@pytest.mark.parametrize("limits", [{}, {"requests_per_minute": 1000, "budget_usd": "5"}])
async def test_where_no_such_limit_is_set_nobody_is_asked_who_they_are_for_it(limits: dict[str, Any]) -> None:
    calls = Calls(Rig(admission=bounded(**limits)))
    one = Call(calls, BODY)
    await one.task
    assert (one.status, calls.asked) == (200, 0)
    calls.rig.pipeline.admission.limits = {"key-1": parse_limits({"max_parallel_requests": 1})}
    await Call(calls, BODY).task
    assert calls.asked == 1, "a change is followed at once"
    calls.rig.pipeline.admission.limits = {}
    await Call(calls, BODY).task
    assert calls.asked == 1
    calls.rig.pipeline.admission.shared = SharedLimits(teams={"red": Rates(max_parallel_requests=1)})
    await Call(calls, BODY).task
    assert calls.asked == 2


async def test_who_leaves_makes_room_and_what_goes_on_without_its_caller_goes_on_being_counted() -> None:
    """Otherwise a script that disconnects at once could have any number in progress, each under a key of its own."""
    calls = Calls(Rig(admission=bounded(max_parallel_requests=1)))
    paused = Paused(calls)
    left = Call(calls, BODY)
    await turns()
    left.go()
    await left.task
    assert await calls.is_free("key:key-1")
    lasting = Call(calls, BODY, idempotency_key="order-7")
    await turns()
    lasting.go()
    await asyncio.gather(lasting.task, return_exceptions=True)
    refused = Call(calls, BODY)
    await refused.task
    assert refused.status == 429
    paused.go.set()
    while not await calls.is_free("key:key-1"):
        await asyncio.sleep(0)
    await calls.idempotency.aclose()


async def test_a_response_in_the_background_is_counted_until_it_is_written() -> None:
    """Its caller has the last byte long before."""
    rig = Rig(admission=bounded(max_parallel_requests=1))
    rig.pipeline.backends = {"one": TranslatingBackend(rig.one), "two": TranslatingBackend(rig.two)}
    rig.pipeline.kept_responses = KeptResponses(MemoryTurns(), rig.pipeline.keys.conversation_secret)
    calls = Calls(rig)
    paused = Paused(calls)
    begun = Call(calls, json.dumps({"model": "a", "input": "hello", "background": True}).encode(), path="/v1/responses")
    await turns()
    assert (begun.status, begun.task.done()) == (200, False)
    begun.go()
    await turns()
    refused = Call(calls, BODY)
    await refused.task
    assert refused.status == 429
    paused.go.set()
    await begun.task
    assert await calls.is_free("key:key-1")


async def test_who_has_heard_the_last_byte_finds_the_place_free() -> None:
    calls = Calls(Rig(admission=bounded(max_parallel_requests=1)))
    next_ones: list[Call] = []

    async def ask_again(message: Message) -> None:
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            next_ones.append(Call(calls, BODY))
            await next_ones[-1].task

    for body in (BODY, STREAM):
        one = Call(calls, body)
        one.hears = ask_again
        await one.task
    assert [one.status for one in next_ones] == [200, 200]


class Weather:
    """Random events for calls and upstreams, from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def script(self) -> Script:
        def outcome(*_: object) -> Outcome:
            fault = self.random.choice(FAULTS)
            return Outcome(
                fault=fault,
                fault_after_pieces=self.random.randrange(3) if fault == "truncated" else 0,
                first_piece_delay_seconds=self.random.choice((0.0, 0.001)),
                piece_delay_seconds=self.random.choice((0.0, 0.0005)),
            )

        return outcome

    async def befall(self, calls: Calls, number: int) -> int | None:
        """Runs one call to whatever end; returns its status, if it got one."""
        luck = self.random.random
        headers: dict[str, str] = {}
        if luck() < 0.2:
            headers["idempotency_key"] = f"order-{self.random.randrange(100)}"
        if luck() < 0.05:
            headers["authorization"] = "Bearer bk-none"
        body = self.random.choice((BODY, STREAM, STREAM, b"not json"))
        parts = (body[:5], body[5:]) if luck() < 0.3 else (body,)
        path = self.random.choice((CHATS, CHATS, "/v1/messages", "/v1/responses", "/v1/nothing"))
        call = Call(calls, *parts, path=path, ends=luck() > 0.05, **headers)
        if luck() < 0.1:

            async def fail(message: Message) -> None:
                raise OSError("the socket is gone")

            call.hears = fail
        fate = luck()
        if fate < 0.4:
            for _ in range(self.random.randrange(30)):
                await asyncio.sleep(0)
            if fate < 0.2:
                call.go()
            else:
                call.task.cancel()
        await asyncio.gather(call.task, return_exceptions=True)
        return call.sent[0]["status"] if call.sent else None


@pytest.mark.parametrize("seed", SEEDS)
async def test_after_a_thousand_calls_with_any_fault_no_place_is_taken(seed: int) -> None:
    weather = Weather(seed)
    shared = SharedLimits(
        teams={"red": Rates(max_parallel_requests=7)},
        models={"a": Rates(max_parallel_requests=3), "b": Rates(max_parallel_requests=2)},
    )
    admission = Admission(limits={"key-1": parse_limits({"max_parallel_requests": 6})}, shared=shared)
    calls = Calls(Rig(one=weather.script(), two=weather.script(), admission=admission), body_seconds=0.02)
    told: list[int | None] = []
    for first in range(0, 1000, 20):
        told += await asyncio.gather(*(weather.befall(calls, number) for number in range(first, first + 20)))
    await calls.idempotency.aclose()
    assert {200, 400, 401, 404, 408, 429, None} <= set(told), "some of everything happened"
    assert await calls.is_free("key:key-1", "team:red", "model:a", "model:b")
    assert (calls.load.requests, calls.load.buffered_bytes) == (0, 0)
    assert not calls.rig.ledger.open


async def test_an_application_that_fails_leaves_no_place_taken() -> None:
    async def broken(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        raise RuntimeError("ours")

    admission = bounded(max_parallel_requests=1)
    layer = UnderWay(broken, admission, lambda scope: KeyRecord("key-1", "test", "app"))

    async def whole() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def nowhere(message: Message) -> None:
        raise AssertionError(message)

    for _ in range(3):
        with pytest.raises(RuntimeError):
            await layer({"type": "http", "method": "POST", "path": CHATS, "headers": []}, whole, nowhere)
