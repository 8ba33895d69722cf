import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from gateway.api.shedding import UNASKED_BYTES, Load, Shedding
from gateway.errors import BodyTooSlow, Overloaded
from tests.virtual_time import now, run
from tests.waiting import until


class Endpoint:
    """Reads its body, waits until released, and records the refusals."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.bodies: list[int] = []
        self.refused: list[Exception] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        size, more = 0, True
        try:
            while more:
                message = await receive()
                size += len(message.get("body", b""))
                more = message.get("more_body", False)
        except (Overloaded, BodyTooSlow) as error:
            self.refused.append(error)
            return
        self.bodies.append(size)
        await self.go.wait()


def known(scope: Scope, came: int) -> int:
    """Allows any size."""
    return 100 << 20


def anybody(scope: Scope) -> str:
    """Gives everyone the same key."""
    return "key-1"


def parts(*sizes: int) -> Receive:
    """A body in these parts, then silence."""

    async def messages() -> AsyncIterator[Message]:
        for number, size in enumerate(sizes):
            more = number + 1 < len(sizes)
            yield {"type": "http.request", "body": b"x" * size, "more_body": more}
        await asyncio.Event().wait()

    iterator = messages()

    async def receive() -> Message:
        return await anext(iterator)

    return receive


def only_begun(goes_on: asyncio.Event | None = None) -> Receive:
    """The first part of a body; the rest once it is released, if ever."""
    event, is_begun = goes_on or asyncio.Event(), False

    async def receive() -> Message:
        nonlocal is_begun
        if is_begun:
            await event.wait()
        is_more, is_begun = not is_begun, True
        return {"type": "http.request", "body": b"x", "more_body": is_more}

    return receive


async def nowhere(message: Message) -> None:
    raise AssertionError("nothing is sent here")


def call(shedding: Shedding, receive: Receive, path: str = "/v1/chat/completions", method: str = "POST") -> Any:
    return shedding({"type": "http", "method": method, "path": path, "headers": []}, receive, nowhere)


async def all_started(load: Load, requests: int) -> None:
    await until(lambda: load.requests >= requests)
    for _ in range(5):
        await asyncio.sleep(0)


async def test_more_requests_than_allowed_are_refused_and_room_is_made_again() -> None:
    endpoint, load = Endpoint(), Load()
    shedding = Shedding(endpoint, load, known, whose=anybody, max_requests=2, max_buffered_bytes=1000)
    running = [asyncio.ensure_future(call(shedding, parts(5))) for _ in range(3)]
    await all_started(load, 2)
    await running[2]
    assert load.requests == 2
    assert [str(error) for error in endpoint.refused] == [
        "This gateway accepts no more requests for now: 2 requests are under way. Try again in a moment."
    ]
    assert load.shed == 1
    endpoint.go.set()
    await asyncio.gather(*running)
    assert (load.requests, load.buffered_bytes) == (0, 0)
    await call(shedding, parts(5))
    assert endpoint.bodies == [5, 5, 5]


@pytest.mark.parametrize("begun", [(), (1, 1, 1)], ids=["a head alone", "a part of a body"])
async def test_a_stranger_takes_no_place_while_its_body_does_not_come(begun: tuple[int, ...]) -> None:
    """As many of them as there are places, sending a byte each, used to lock out everyone else for a minute."""

    def bound(scope: Scope, came: int) -> int:
        if scope.get("headers"):
            return 1 << 20
        raise Overloaded("Who are you?", retry_after_seconds=1.0)

    endpoint, load = Endpoint(), Load()
    shedding = Shedding(endpoint, load, bound, whose=anybody, max_requests=2, max_buffered_bytes=1000)
    strangers = [asyncio.ensure_future(call(shedding, parts(*begun))) for _ in range(9)]
    callers = [asyncio.ensure_future(call(shedding, parts(5))) for _ in range(2)]
    await all_started(load, 2)
    assert endpoint.bodies == [5, 5]
    assert [str(one) for one in endpoint.refused] == ["Who are you?"] * 9 * bool(begun)
    scope = {"type": "http", "method": "POST", "path": "/v1/chat/completions", "headers": [(b"x", b"y")]}
    await shedding(scope, parts(1, 1), nowhere)
    assert "2 requests are under way" in str(endpoint.refused[-1]), "a known one has to find a place as well"
    endpoint.go.set()
    await asyncio.gather(*callers)
    for one in strangers:
        one.cancel()
    await asyncio.gather(*strangers, return_exceptions=True)
    assert (load.requests, load.buffered_bytes) == (0, 0)


def whose(scope: Scope) -> str:
    return scope["headers"][0][1].decode()


def called(shedding: Shedding, key: str, receive: Receive) -> asyncio.Task[Any]:
    scope = {"type": "http", "method": "POST", "path": "/v1/messages", "headers": [(b"x-api-key", key.encode())]}
    return asyncio.ensure_future(shedding(scope, receive, nowhere))


async def test_a_key_that_takes_all_places_with_bodies_that_do_not_come_makes_room_for_others() -> None:
    """At 500 bytes a second, one key used to lock out everyone else for as long as it liked."""
    endpoint, load = Endpoint(), Load()
    shedding = Shedding(endpoint, load, known, whose=whose, max_requests=4, max_buffered_bytes=1000)
    slow = [called(shedding, "greedy", only_begun()) for _ in range(4)]
    for one in slow:  # while there is room, a key may have all of it
        await all_started(load, 4)
        assert not one.done()
    assert (load.requests, endpoint.refused) == (4, [])
    others = [called(shedding, "other", parts(5)) for _ in range(2)]
    await asyncio.wait(slow[:2])
    await all_started(load, 4)
    assert endpoint.bodies == [5, 5]
    assert [one.done() for one in slow] == [True, True, False, False], (
        "the oldest went, and half of the places are left"
    )
    assert [str(error) for error in endpoint.refused] == [
        "This gateway accepts no more requests for now: more than half of its places are taken by requests of this key "
        "whose bodies have not arrived, and others need them. Send bodies faster, or fewer at once. Try again in a "
        "moment."
    ] * 2
    refused = called(shedding, "other", parts(5))
    await refused
    assert "4 requests are under way" in str(endpoint.refused[-1])
    assert not slow[2].done()
    endpoint.go.set()
    await asyncio.gather(*others)
    for one in slow:
        one.cancel()
    await asyncio.gather(*slow, return_exceptions=True)
    assert (load.requests, load.buffered_bytes) == (0, 0)


async def test_a_key_makes_no_room_for_itself_and_nobody_is_given_up_whose_body_is_there() -> None:
    endpoint, load = Endpoint(), Load()
    shedding = Shedding(endpoint, load, known, whose=whose, max_requests=2, max_buffered_bytes=1000)
    slow = [called(shedding, "greedy", only_begun()) for _ in range(2)]
    await all_started(load, 2)
    await called(shedding, "greedy", parts(5))
    assert len(endpoint.refused) == 1
    assert not any(one.done() for one in slow)
    for one in slow:
        one.cancel()
    await asyncio.gather(*slow, return_exceptions=True)
    whole = [called(shedding, "greedy", parts(1, 1)) for _ in range(2)]
    await all_started(load, 2)
    await called(shedding, "other", parts(5))
    assert "2 requests are under way" in str(endpoint.refused[-1])
    endpoint.go.set()
    await asyncio.gather(*whole)
    assert endpoint.bodies == [2, 2]


async def test_a_body_that_is_given_up_while_its_last_part_is_looked_at_is_told_when_it_reads_on() -> None:
    load, looks_on, refused = Load(), asyncio.Event(), list[Exception]()

    async def slow_reader(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        if whose(scope) == "greedy":
            await looks_on.wait()
            try:
                await receive()
            except Overloaded as error:
                refused.append(error)

    shedding = Shedding(slow_reader, load, known, whose=whose, max_requests=1, max_buffered_bytes=1000)
    greedy = called(shedding, "greedy", only_begun())
    await all_started(load, 1)
    await called(shedding, "other", parts(5))
    looks_on.set()
    await greedy
    assert "requests of this key whose bodies have not arrived" in str(refused)


async def test_who_has_a_place_keeps_it_while_others_are_refused() -> None:
    """Refused requests used to count until they were answered, and meanwhile the next part of a body found no place."""
    endpoint, load, goes_on = Endpoint(), Load(), asyncio.Event()
    shedding = Shedding(endpoint, load, known, whose=whose, max_requests=1, max_buffered_bytes=1000)
    first = called(shedding, "one", only_begun(goes_on))
    await all_started(load, 1)
    load.requests += 1  # somebody who is being refused
    goes_on.set()
    endpoint.go.set()
    await first
    assert (endpoint.bodies, endpoint.refused) == ([2], [])


async def test_bodies_are_bounded_all_together() -> None:
    endpoint, load = Endpoint(), Load()
    shedding = Shedding(endpoint, load, known, whose=anybody, max_requests=100, max_buffered_bytes=3 << 20)
    first = asyncio.ensure_future(call(shedding, parts(1 << 20, 1 << 20)))
    await all_started(load, 1)
    await call(shedding, parts(1 << 20, 1 << 20, 1 << 20))
    assert "hold 3 MB" in str(endpoint.refused[0])
    assert load.buffered_bytes == 2 << 20, "what was refused is forgotten at once"
    endpoint.go.set()
    await first
    assert load.buffered_bytes == 0


async def test_a_body_that_stops_arriving_is_given_up() -> None:
    endpoint, load = Endpoint(), Load()
    shedding = Shedding(
        endpoint, load, known, whose=anybody, max_requests=1, max_buffered_bytes=1000, body_seconds=0.01
    )

    async def never() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    await call(shedding, never)
    assert isinstance(endpoint.refused[0], BodyTooSlow)
    assert load.requests == 0


def every(seconds: float, size: int, times: int) -> Receive:
    """A body in equal parts with a pause before each."""
    left = times

    async def receive() -> Message:
        nonlocal left
        await asyncio.sleep(seconds)
        left -= 1
        return {"type": "http.request", "body": b"x" * size, "more_body": left > 0}

    return receive


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/admin/v1/rules"])
def test_a_slow_upload_lives_while_it_moves_and_a_byte_now_and_then_does_not(path: str) -> None:
    async def body_of(receive: Receive) -> tuple[list[int], float]:
        endpoint = Endpoint()
        endpoint.go.set()
        shedding = Shedding(endpoint, Load(), known, whose=anybody, max_requests=1, max_buffered_bytes=1 << 30)
        await call(shedding, receive, path)
        return endpoint.bodies, now()

    assert run(lambda: body_of(every(1.0, 600, 3600))) == ([600 * 3600], 3600.0)
    assert run(lambda: body_of(every(59.0, 30_000, 100))) == ([3_000_000], 5900.0)
    bodies, until = run(lambda: body_of(every(50.0, 1, 1_000_000)))
    assert not bodies
    assert until < 61


@pytest.mark.parametrize(("path", "method"), [("/healthz", "GET"), ("/metrics", "GET"), ("/admin/v1/keys", "POST")])
async def test_what_says_how_things_are_is_never_refused(path: str, method: str) -> None:
    endpoint, load = Endpoint(), Load(requests=100)
    endpoint.go.set()
    await call(
        Shedding(endpoint, load, known, whose=anybody, max_requests=1, max_buffered_bytes=1), parts(5000), path, method
    )
    assert endpoint.bodies == [5000]


@pytest.mark.parametrize(("path", "method"), [("/v1/chat/completions", "POST"), ("/admin/v1/rules", "PUT")])
async def test_whose_a_long_body_is_is_asked_once_and_before_the_rest_of_it(path: str, method: str) -> None:
    endpoint, asked = Endpoint(), list[int]()
    endpoint.go.set()

    def bound(scope: Scope, came: int) -> int:
        asked.append(came)
        if scope.get("headers"):
            return 1 << 20
        raise Overloaded("Who are you?", retry_after_seconds=1.0)

    shedding = Shedding(endpoint, Load(), bound, whose=anybody, max_requests=9, max_buffered_bytes=9 << 20)
    await call(shedding, parts(UNASKED_BYTES), path, method)
    assert not asked
    await call(shedding, parts(UNASKED_BYTES, 1, 1 << 20), path, method)
    assert [str(error) for error in endpoint.refused] == ["Who are you?"]
    scope = {"type": "http", "method": method, "path": path, "headers": [(b"authorization", b"Bearer k")]}
    await shedding(scope, parts(UNASKED_BYTES, 1, 100), nowhere)
    came = UNASKED_BYTES + (path != "/v1/chat/completions")  # where there are places to take: of the first part
    assert asked == [came, came]
    assert endpoint.bodies == [UNASKED_BYTES, UNASKED_BYTES + 101]
