"""The contract of all idempotency stores, also with a hundred callers at once."""

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Sequence
from typing import Any, cast

import pytest
from redis.asyncio import Redis

from backends.errors import StreamBroken
from gateway.errors import IdempotencyMismatch, InvalidRequest, Overloaded
from gateway.kept_answers.idempotency import (
    LARGEST_SHARED_BYTES,
    Found,
    Headers,
    Idempotency,
    IdempotencyStore,
    Recorded,
    SharedAnswer,
    Sink,
)
from gateway.kept_answers.memory_idempotency import MemoryIdempotency
from gateway.storage.redis.client import connect_bytes
from gateway.storage.redis.idempotency import RedisIdempotency
from tests.redis_server import PATIENCE_SECONDS, SERVERS, Reached, RedisServer

ANSWER = Recorded(200, ((b"content-type", b"application/json"),), b"{}")
ONE, OTHER = b"1" * 32, b"2" * 32


def redis_store(client: Redis) -> RedisIdempotency:
    """With a long timeout, since a stalled machine is not an outage."""
    return RedisIdempotency(client, answer_seconds=PATIENCE_SECONDS)


@pytest.fixture(params=["memory", "redis", "redis cluster"])
async def store(request: pytest.FixtureRequest) -> AsyncGenerator[IdempotencyStore]:
    if request.param == "memory":
        yield MemoryIdempotency()
        return
    server = cast(Reached, request.getfixturevalue(SERVERS[request.param]))
    async with connect_bytes(server.url) as client:
        yield redis_store(client)


class Kept:
    """A sink that records what it is sent."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: Headers = ()
        self.body = b""
        self.is_complete = False

    async def start(self, status: int, headers: Headers) -> None:
        self.status, self.headers = status, headers

    async def send(self, body: bytes, *, is_last: bool) -> None:
        self.body += body
        self.is_complete = is_last

    @property
    def is_replayed(self) -> bool:
        return (b"idempotent-replayed", b"true") in self.headers


class Served:
    """Serves two pieces when allowed to, and counts the requests."""

    def __init__(self, *, is_whole: bool = True, error: Exception | None = None) -> None:
        self.count = 0
        self.go_on = asyncio.Event()
        self._is_whole = is_whole
        self._error = error

    async def __call__(self, sink: Sink) -> bool:
        self.count += 1
        if self._error is not None:
            raise self._error
        await sink.start(200, [(b"content-type", b"text/event-stream")])
        await sink.send(b"one ", is_last=False)
        await self.go_on.wait()
        await sink.send(b"two", is_last=True)
        return self._is_whole


def identify(credential: str | None) -> str:
    return f"key of {credential}"


async def ask(service: Idempotency, served: Served, *, key: str = "k", who: str = "ann", body: bytes = b"b") -> Kept:
    sink = Kept()
    await service.answer(key, who, (body,), served, sink)
    return sink


async def begun(served: Served, asking: Sequence[asyncio.Future[Kept]]) -> None:
    """Waits until one of them is being served; none can have ended before."""
    while not served.count:
        for one in asking:
            assert not one.done(), one.exception()
        await asyncio.sleep(0)


async def test_a_name_belongs_to_whoever_claims_it_first(store: IdempotencyStore) -> None:
    assert await store.claim("n", ONE) is None
    assert await store.claim("n", OTHER) == Found(ONE, None)
    await store.renew("n", ONE)
    await store.finish("n", ONE, ANSWER)
    assert await store.claim("n", ONE) == Found(ONE, ANSWER)


async def test_an_abandoned_name_is_free(store: IdempotencyStore) -> None:
    assert await store.claim("n", ONE) is None
    await store.abandon("n", ONE)
    assert await store.claim("n", OTHER) is None


async def test_a_hundred_equal_callers_are_served_once(store: IdempotencyStore) -> None:
    service, served = Idempotency(store, identify), Served()
    asking = [asyncio.ensure_future(ask(service, served)) for _ in range(100)]
    await begun(served, asking)
    served.go_on.set()
    answers = await asyncio.gather(*asking)
    assert served.count == 1
    assert {(one.status, one.body, one.is_complete) for one in answers} == {(200, b"one two", True)}
    assert sum(one.is_replayed for one in answers) == 99
    assert (await ask(service, served)).is_replayed, "afterwards too"
    assert served.count == 1


async def test_what_comes_without_end_is_not_held_for_a_key() -> None:
    shared, piece = SharedAnswer(ONE), bytes(LARGEST_SHARED_BYTES // 4)
    await shared.start(200, ())
    for _ in range(4):
        await shared.send(piece, is_last=False)
    with pytest.raises(StreamBroken, match="64 MB"):
        await shared.send(b"x", is_last=False)
    await shared.send(b"why it ends", is_last=True)
    shared.end()
    sink = Kept()
    await shared.follow(sink)
    assert sink.is_complete
    assert shared.recorded() is None


async def test_workers_that_share_a_store_serve_once(redis_server: RedisServer) -> None:
    async with connect_bytes(redis_server.url) as one, connect_bytes(redis_server.url) as two:
        workers = [Idempotency(redis_store(client), identify) for client in (one, two)]
        served = Served()
        asking = [asyncio.ensure_future(ask(workers[number % 2], served)) for number in range(20)]
        await begun(served, asking)
        served.go_on.set()
        assert {(one.status, one.body) for one in await asyncio.gather(*asking)} == {(200, b"one two")}
        assert served.count == 1


async def test_another_request_under_the_same_key_is_refused(store: IdempotencyStore) -> None:
    service, served = Idempotency(store, identify), Served()
    served.go_on.set()
    await ask(service, served)
    with pytest.raises(IdempotencyMismatch):
        await ask(service, served, body=b"another")


async def test_the_same_key_of_another_caller_is_another_key(store: IdempotencyStore) -> None:
    service, served = Idempotency(store, identify), Served()
    served.go_on.set()
    await ask(service, served)
    assert not (await ask(service, served, who="bob", body=b"another")).is_replayed
    assert served.count == 2


async def test_an_answer_that_broke_off_is_served_anew(store: IdempotencyStore) -> None:
    service, served = Idempotency(store, identify), Served(is_whole=False)
    served.go_on.set()
    assert [(await ask(service, served)).is_replayed for _ in range(2)] == [False, False]


async def test_a_refused_request_is_served_anew(store: IdempotencyStore) -> None:
    service, served = Idempotency(store, identify), Served(error=InvalidRequest("wrong"))
    for _ in range(2):
        with pytest.raises(InvalidRequest, match="wrong"):
            await ask(service, served)
    assert served.count == 2


async def test_a_caller_that_gives_up_finds_the_answer_when_it_asks_again(store: IdempotencyStore) -> None:
    service, served = Idempotency(store, identify), Served()
    first = asyncio.ensure_future(ask(service, served))
    await begun(served, [first])
    first.cancel()
    again = asyncio.ensure_future(ask(service, served))
    served.go_on.set()
    assert (await again).body == b"one two"
    assert served.count == 1
    await service.aclose()


async def test_a_follower_sees_the_first_piece_before_the_last_exists() -> None:
    service, served, sink = Idempotency(MemoryIdempotency(), identify), Served(), Kept()
    leader = asyncio.ensure_future(ask(service, served))
    follower = asyncio.ensure_future(service.answer("k", "ann", (b"b",), served, sink))
    while not sink.body:
        await asyncio.sleep(0)
    assert (sink.body, sink.is_complete) == (b"one ", False)
    served.go_on.set()
    await asyncio.gather(leader, follower)
    assert sink.is_complete


@pytest.mark.parametrize("key", ["", "x" * 256, "a\nb"])
async def test_a_key_that_is_none(key: str) -> None:
    with pytest.raises(InvalidRequest, match="printable"):
        await ask(Idempotency(MemoryIdempotency(), identify), Served(), key=key)


async def test_without_its_store_a_key_is_refused_and_the_service_recovers(redis_server: RedisServer) -> None:
    async with connect_bytes(redis_server.url) as client:
        service, served = Idempotency(redis_store(client), identify), Served()
        served.go_on.set()
        redis_server.stop()
        try:
            with pytest.raises(Overloaded, match="without one"):
                await ask(service, served)
        finally:
            redis_server.start()
        assert (await ask(service, served)).body == b"one two"


async def test_a_dead_workers_claim_ends_with_its_lease(redis_server: RedisServer) -> None:
    async with connect_bytes(redis_server.url) as client:
        assert await redis_store(client).claim("n", ONE) is None
        assert 0 < await client.pttl("breakeven:idempotency:n") <= 30_000
        await client.expire("breakeven:idempotency:n", 86_400)  # the server's clock was put back by a day
        assert await redis_store(client).claim("n", ONE) == Found(ONE, None)
        assert 0 < await client.pttl("breakeven:idempotency:n") <= 30_000


async def test_a_claim_that_redis_lost_is_renewed_all_the_same(redis_server: RedisServer) -> None:
    """As by a flush or a clock put forward: an equal request used to be served, and charged, too."""
    async with connect_bytes(redis_server.url) as client:
        store = redis_store(client)
        assert await store.claim("n", ONE) is None
        redis_server.flush()
        await store.renew("n", ONE)
        assert await redis_store(client).claim("n", ONE) == Found(ONE, None)
        assert 0 < await client.pttl("breakeven:idempotency:n") <= 30_000


async def test_a_worker_that_stood_still_gives_up_no_claim_but_its_own(redis_server: RedisServer) -> None:
    async with connect_bytes(redis_server.url) as client:
        frozen, other = redis_store(client), redis_store(client)
        assert await frozen.claim("n", ONE) is None
        await client.delete("breakeven:idempotency:n")  # its lease is over
        assert await other.claim("n", ONE) is None
        await frozen.renew("n", ONE)
        await frozen.abandon("n", ONE)
        assert await frozen.claim("n", ONE) == Found(ONE, None)
        await other.abandon("n", ONE)
        assert await frozen.claim("n", ONE) is None


@pytest.mark.parametrize("since", [ONE, OTHER])
async def test_a_worker_that_stood_still_answers_for_nobody_else(redis_server: RedisServer, since: bytes) -> None:
    async with connect_bytes(redis_server.url) as client:
        frozen, other = redis_store(client), redis_store(client)
        assert await frozen.claim("n", ONE) is None
        await client.delete("breakeven:idempotency:n")  # its lease is over
        assert await other.claim("n", since) is None
        await frozen.finish("n", ONE, Recorded(200, (), b"late"))
        assert await frozen.claim("n", ONE) == Found(since, None)
        await other.finish("n", since, ANSWER)
        await frozen.finish("n", ONE, Recorded(200, (), b"late"))
        assert await frozen.claim("n", ONE) == Found(since, ANSWER)


async def test_an_answer_whose_lease_is_over_is_kept_where_nobody_asked_since(redis_server: RedisServer) -> None:
    async with connect_bytes(redis_server.url) as client:
        store = redis_store(client)
        assert await store.claim("n", ONE) is None
        await client.delete("breakeven:idempotency:n")
        await store.finish("n", ONE, ANSWER)
        assert await store.claim("n", ONE) == Found(ONE, ANSWER)
        assert 80_000_000 < await client.pttl("breakeven:idempotency:n") <= 86_400_000


class LateStore(MemoryIdempotency):
    """One of its commands arrives when told to, whether or not anybody waits for it. A claim is renewed at once."""

    lease_seconds = 0.0

    def __init__(self, late: str) -> None:
        super().__init__()
        self._late = late
        self.is_sent, self.arrives = asyncio.Event(), asyncio.Event()

    async def claim(self, name: str, fingerprint: bytes) -> Found | None:
        return await self._sent("claim", super().claim(name, fingerprint))

    async def renew(self, name: str, fingerprint: bytes) -> None:
        """Makes the claim again, as RedisIdempotency does."""
        await self._sent("renew", super().claim(name, fingerprint))

    async def _sent(self, command: str, work: Coroutine[Any, Any, Found | None]) -> Found | None:
        return await asyncio.shield(self._arrived(work)) if command == self._late else await work

    async def _arrived(self, work: Coroutine[Any, Any, Found | None]) -> Found | None:
        self.is_sent.set()
        await self.arrives.wait()
        return await work


async def test_who_leaves_while_a_name_is_claimed_claims_nothing() -> None:
    store, served = LateStore("claim"), Served()
    asking = asyncio.ensure_future(ask(Idempotency(store, identify), served))
    await store.is_sent.wait()
    asking.cancel()
    await asyncio.sleep(0)
    store.arrives.set()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await asyncio.sleep(0)
    assert not store._claims  # pyright: ignore[reportPrivateUsage]
    assert not served.count


async def test_a_renewal_that_is_under_way_as_a_request_fails_claims_nothing() -> None:
    store = LateStore("renew")

    async def fails(sink: Sink) -> bool:
        await store.is_sent.wait()
        asyncio.get_running_loop().call_later(0.02, store.arrives.set)
        raise InvalidRequest("wrong")

    with pytest.raises(InvalidRequest, match="wrong"):
        await Idempotency(store, identify).answer("k", "ann", (b"b",), fails, Kept())
    await store.arrives.wait()
    await asyncio.sleep(0)
    assert not store._claims  # pyright: ignore[reportPrivateUsage]


class SlowToKeep(MemoryIdempotency):
    """Stores an answer only when told to."""

    def __init__(self) -> None:
        super().__init__()
        self.claims = 0
        self.is_keeping = asyncio.Event()
        self.go_on = asyncio.Event()

    async def claim(self, name: str, fingerprint: bytes) -> Found | None:
        self.claims += 1
        return await super().claim(name, fingerprint)

    async def finish(self, name: str, fingerprint: bytes, recorded: Recorded, *, owner: str = "") -> None:
        self.is_keeping.set()
        await self.go_on.wait()
        await super().finish(name, fingerprint, recorded, owner=owner)


async def test_until_an_answer_is_kept_nobody_hears_its_end_and_whoever_asks_follows_it() -> None:
    store, served, sink = SlowToKeep(), Served(), Kept()
    service = Idempotency(store, identify)
    first = asyncio.ensure_future(service.answer("k", "ann", (b"b",), served, sink))
    served.go_on.set()
    await store.is_keeping.wait()
    again = asyncio.ensure_future(ask(service, served))
    for _ in range(100):
        await asyncio.sleep(0)
    assert (sink.body, sink.is_complete) == (b"one ", False)
    assert store.claims == 1
    store.go_on.set()
    await first
    assert ((await again).body, sink.body, served.count) == (b"one two", b"one two", 1)


async def test_in_memory_who_asks_much_pushes_out_its_own() -> None:
    service, served = Idempotency(MemoryIdempotency(max_bytes=10_000), identify), Served()
    served.go_on.set()
    await service.answer("k", "ann", (b"b",), served, Kept())
    for number in range(30):
        await service.answer(f"{number}", "bob", (b"b",), served, Kept())
    await service.answer("k", "ann", (b"b",), served, Kept())
    assert served.count == 31, "hers was kept"


async def test_memory_forgets_the_oldest_and_the_expired() -> None:
    now = 0.0
    store = MemoryIdempotency(seconds=10, max_bytes=2000, monotonic=lambda: now)
    for name in ("a", "b", "c"):
        assert await store.claim(name, ONE) is None
        await store.finish(name, ONE, Recorded(200, (), b"x" * 400))
    assert await store.claim("a", ONE) is None, "too much was kept: the oldest went"
    assert await store.claim("c", ONE) is not None
    now = 11.0
    assert await store.claim("c", ONE) is None
