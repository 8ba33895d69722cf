"""The exact response cache on the request path: who gets a hit, what it looks like, and how it is booked."""

import asyncio
import json
from typing import cast

import pytest

from backends.protocol import Chunk, Operation
from backends.scripted import Outcome, follow
from gateway.access.keys import KeyRecord, hash_key
from gateway.errors import StoreDown
from gateway.kept_answers.memory_responses import MemoryResponses
from gateway.kept_answers.response_cache import BACKEND, TAG, CachedAnswer, ResponseCache, ResponseStore
from gateway.ledger.entry import Entry, Status
from gateway.request.run import Incoming
from gateway.storage.redis.client import connect_bytes
from gateway.storage.redis.responses import RedisResponses
from tests.builders import make_snapshot
from tests.redis_server import PATIENCE_SECONDS, SERVERS, Reached, RedisServer
from tests.rig import KEY, PEPPER, A, B, RecordingCaller, Rig

BODY = {"model": "auto", "messages": [{"role": "user", "content": "hello"}]}
CACHED_RULE = "version: 1\nrules:\n  - {name: default, choose: {from: any}, cache_seconds: 60}\n"


async def ask(
    rig: Rig,
    *,
    seconds: int | None = 60,
    key: str = KEY,
    tags: tuple[str, ...] = (),
    operation: Operation = "chat.completions",
    **changes: object,
) -> RecordingCaller:
    caller = RecordingCaller()
    body = json.dumps({**BODY, **changes}).encode()
    await rig.pipeline.answer(Incoming(operation, f"Bearer {key}", body, tags, seconds), caller)
    return caller


def booked(rig: Rig) -> list[Entry]:
    assert not rig.ledger.open
    return rig.ledger.entries


@pytest.mark.parametrize("is_stream", [False, True])
async def test_the_second_equal_request_gets_the_first_ones_bytes(is_stream: bool) -> None:
    rig = Rig()
    first, second = [await ask(rig, stream=is_stream) for _ in range(2)]
    assert first.body == second.body
    assert (first.headers["x-breakeven-cache"], second.headers["x-breakeven-cache"]) == ("miss", "hit")
    assert (second.headers["x-breakeven-cost-usd"], second.headers["x-breakeven-saved-usd"]) == ("0", "0.000028")
    assert len(rig.one.calls) == 1
    if is_stream:
        assert second.body.endswith(b"data: [DONE]\n\n")
        assert len(second.sent) > 2, "replayed as the events it came in"


async def test_a_hit_costs_nothing_and_the_books_say_what_it_saved() -> None:
    rig = Rig()
    for _ in range(2):
        await ask(rig)
    bought, hit = booked(rig)
    assert bought.cost is not None
    assert hit.cost is not None
    assert (hit.cost.total_pico_usd, hit.cost.list_pico_usd) == (0, bought.cost.total_pico_usd)
    assert (hit.backend, hit.provider, hit.model, hit.status) == (BACKEND, BACKEND, "a", Status.completed)
    assert (hit.input_tokens, hit.output_tokens, hit.attempts) == (0, 0, ())
    assert hit.intent.decision.rule == "default", "it was decided like any other"


@pytest.mark.parametrize("seconds", [None, 0])
async def test_nobody_is_cached_unasked(seconds: int | None) -> None:
    rig = Rig()
    callers = [await ask(rig, seconds=seconds) for _ in range(2)]
    assert not any("x-breakeven-cache" in caller.headers for caller in callers)
    assert len(rig.one.calls) == 2


async def test_a_tag_and_a_rule_ask_too_and_the_header_overrules_them() -> None:
    rig = Rig()
    for _ in range(2):
        await ask(rig, seconds=None, tags=(TAG,))
    assert len(rig.one.calls) == 1
    await ask(rig, seconds=0, tags=(TAG,))
    assert len(rig.one.calls) == 2
    ruled = Rig()
    ruled.pipeline.snapshot = make_snapshot(CACHED_RULE, [A, B])
    for _ in range(2):
        await ask(ruled, seconds=None)
    assert len(ruled.one.calls) == 1


async def test_an_answer_ends_with_its_time() -> None:
    now = 0.0
    rig = Rig(responses=ResponseCache(MemoryResponses(monotonic=lambda: now)))
    await ask(rig)
    now = 59.0
    assert (await ask(rig)).headers["x-breakeven-cache"] == "hit"
    now = 61.0
    assert (await ask(rig)).headers["x-breakeven-cache"] == "miss"


async def test_another_tenant_another_body_and_another_endpoint_are_misses() -> None:
    rig = Rig()
    other, colleague = KeyRecord("key-9", "other", "app", team="blue"), KeyRecord("key-8", "mate", "app", team="red")
    known = {hash_key(PEPPER, "bk-other"): other, hash_key(PEPPER, "bk-mate"): colleague}
    mine = KeyRecord("key-1", "test", "app", team="red")
    rig.pipeline.keys.replace({**known, hash_key(PEPPER, KEY): mine})
    await ask(rig)
    assert (await ask(rig, key="bk-other")).headers["x-breakeven-cache"] == "miss"
    assert (await ask(rig, key="bk-mate")).headers["x-breakeven-cache"] == "hit", "a team is one tenant"
    assert (await ask(rig, temperature=1)).headers["x-breakeven-cache"] == "miss"
    assert (await ask(rig, operation="completions", prompt="x")).headers["x-breakeven-cache"] == "miss"


async def test_an_answer_of_a_model_that_may_not_serve_any_more_is_not_used() -> None:
    rig = Rig()
    await ask(rig)
    record = KeyRecord("key-1", "test", "app", team="red", allowed_models=frozenset({"b"}))
    rig.pipeline.keys.replace({hash_key(PEPPER, KEY): record})
    caller = await ask(rig)
    assert (caller.headers["x-breakeven-cache"], caller.headers["x-breakeven-model"]) == ("miss", "b")


@pytest.mark.parametrize(
    "outcome",
    [Outcome(fault="reset", fault_after_pieces=2), Outcome(pieces=("x" * 2_000_000,))],
    ids=["broken", "too large"],
)
async def test_only_whole_answers_of_a_sensible_size_are_kept(outcome: Outcome) -> None:
    rig = Rig(one=follow([outcome, Outcome()]))
    _, caller = [await ask(rig, stream=True) for _ in range(2)]
    assert caller.headers["x-breakeven-cache"] == "miss"
    assert caller.body.endswith(b"[DONE]\n\n")


async def test_state_kept_at_a_provider_is_never_cached() -> None:
    rig = Rig()
    _, caller = [await ask(rig, operation="responses", input="hi", previous_response_id="resp_1") for _ in range(2)]
    assert "x-breakeven-cache" not in caller.headers


class _Hasty(RecordingCaller):
    """Closes its connection once it has the last byte."""

    async def send(self, payload: bytes, *, chunk: Chunk | None = None, is_last: bool = False) -> None:
        await super().send(payload, chunk=chunk, is_last=is_last)
        task = asyncio.current_task()
        if is_last and task is not None:
            asyncio.get_running_loop().call_soon(lambda: self._is_outlived or task.cancel())


class _Slow(MemoryResponses):
    async def put(self, name: str, answer: CachedAnswer, seconds: int, *, owner: str = "") -> None:
        await asyncio.sleep(0.01)
        await super().put(name, answer, seconds, owner=owner)


async def test_who_closes_the_connection_after_its_answer_finds_that_kept() -> None:
    """As `curl` does: over the first connections to Redis, its cached answers were lost."""
    rig = Rig(responses=ResponseCache(_Slow()))
    asked = Incoming("chat.completions", f"Bearer {KEY}", json.dumps(BODY).encode(), (), 60)
    await asyncio.create_task(rig.pipeline.answer(asked, _Hasty()))
    assert (await ask(rig)).headers["x-breakeven-cache"] == "hit"


class _Broken:
    async def get(self, name: str) -> CachedAnswer | None:
        raise StoreDown("not today")

    async def put(self, name: str, answer: CachedAnswer, seconds: int, *, owner: str = "") -> None:
        raise StoreDown("not today")


async def test_without_its_store_requests_go_on() -> None:
    rig = Rig(responses=ResponseCache(_Broken()))
    for _ in range(2):
        assert (await ask(rig)).headers["x-breakeven-cache"] == "miss"
    assert [entry.status for entry in booked(rig)] == [Status.completed] * 2


async def test_memory_keeps_what_was_used_last() -> None:
    store = MemoryResponses(max_bytes=3_000)
    answer = CachedAnswer("a", "a", "application/json", (), None, 1)
    for number in range(20):
        await store.put(f"n{number}", answer, 60)
        assert await store.get("n0") is not None
    assert await store.get("n1") is None
    await store.put("n0", answer, 60)
    assert await store.get("n0") == answer


@pytest.mark.parametrize("kind", SERVERS)
async def test_redis_shares_answers_and_forgets_them_in_time(kind: str, request: pytest.FixtureRequest) -> None:
    server: Reached = request.getfixturevalue(SERVERS[kind])
    async with connect_bytes(server.url) as client:
        stores = [cast(ResponseStore, RedisResponses(client, patience_seconds=PATIENCE_SECONDS)) for _ in range(2)]
        one, two = (Rig(responses=ResponseCache(store)) for store in stores)
        first, second = await ask(one, stream=True), await ask(two, stream=True)
        assert second.headers["x-breakeven-cache"] == "hit"
        assert first.body == second.body
        assert not two.one.calls
        name = (await client.keys("*breakeven*:answers:*"))[0]
        assert 0 < await client.ttl(name) <= 60


@pytest.mark.parametrize("is_shared", [False, True])
async def test_in_a_full_store_who_caches_much_makes_room_with_its_own(
    is_shared: bool, request: pytest.FixtureRequest
) -> None:
    """Answers that are kept for less time too: their owner's share is remembered for as long as the longest."""
    large = CachedAnswer("a", "a", "text/plain", (Chunk(bytes(200_000)),), None, 1)

    async def check(store: ResponseStore) -> None:
        await store.put("hers", large, 600, owner="ann")
        for number in range(61):
            await store.put(f"{number}", large, 600 if number % 2 else 20, owner="bob")
        assert await store.get("hers") == large
        assert await store.get("60") == large

    if not is_shared:
        await check(MemoryResponses(max_bytes=30 * 200_000))
        return
    server: RedisServer = request.getfixturevalue("redis_server")
    async with connect_bytes(server.url) as client:
        used = int((await client.info("memory"))["used_memory"])
        await client.config_set("maxmemory-policy", "volatile-lru")
        await client.config_set("maxmemory", used + 30 * 200_000)
        try:
            await check(RedisResponses(client, patience_seconds=PATIENCE_SECONDS))
            assert await client.ttl("breakeven:shares:breakeven:answers:bob") > 20
        finally:
            await client.config_set("maxmemory", 0)
            await client.config_set("maxmemory-policy", "noeviction")


async def test_a_silent_redis_is_a_miss(redis_server: RedisServer) -> None:
    async with connect_bytes(redis_server.url) as client:
        redis_server.stop()
        try:
            rig = Rig(responses=ResponseCache(RedisResponses(client)))
            assert (await asyncio.wait_for(ask(rig), 300)).headers["x-breakeven-cache"] == "miss"
        finally:
            redis_server.start()
