"""A caller that leaves at any moment: whatever its request was waiting for, nothing stays taken, and what was accepted
is booked once."""

import asyncio
import json
import re
from collections.abc import Callable
from typing import Any, cast

import pytest

from backends.protocol import Operation
from backends.scripted import Fault, Outcome, Script, follow
from backends.translating import TranslatingBackend
from gateway.errors import BreakevenError
from gateway.kept_answers.background_responses import BackgroundResponses
from gateway.kept_answers.idempotency import Headers, Idempotency, IdempotencyStore, Sink
from gateway.kept_answers.kept_conversations import KeptConversations
from gateway.kept_answers.kept_responses import KeptResponses
from gateway.kept_answers.kept_turns import TurnStore
from gateway.kept_answers.memory_idempotency import MemoryIdempotency
from gateway.kept_answers.memory_responses import MemoryResponses
from gateway.kept_answers.memory_turns import MemoryTurns
from gateway.kept_answers.open_responses import OpenResponses
from gateway.kept_answers.record_store import RecordStore
from gateway.kept_answers.response_cache import ResponseCache, ResponseStore
from gateway.ledger.entry import tenant_of
from gateway.limits.admission import Admission
from gateway.limits.counters import Places
from gateway.limits.treasury import Treasury
from gateway.limits.values import Rates, SharedLimits, parse_limits
from gateway.pipeline import Incoming
from gateway.routing.circuit_breaker import CircuitBreaker
from gateway.routing.fallback import RetryPolicy
from gateway.routing.first_token_times import FirstTokenTimes
from tests.builders import make_snapshot
from tests.leaving import Leaving, Slow, SlowBackend, SlowCaller, SlowCounters, SlowLedger
from tests.rig import KEY, A, B, RecordingCaller, Rig

MOST_WAITS = 100
SETTLING_STEPS = 50
"""More turns of the event loop than anything that still goes on afterwards takes."""
TENANT = tenant_of("red", "key-1")
CASCADE = "version: 1\nrules:\n  - {name: it, choose: {from: [a]}, cascade: {escalate_to: [b]}}\n"
OVERTAKING = RetryPolicy(first_wait_seconds=0.0, first_token_seconds=0.0)
HEDGING = RetryPolicy(first_wait_seconds=0.0, is_hedging=True)


class Scene:
    """A request, and what must be free after it."""

    def __init__(
        self,
        one: Script | None = None,
        two: Script | None = None,
        *,
        moments: int = 1,
        is_deaf: bool = False,
        is_stream: bool = False,
        **changes: Any,
    ) -> None:
        self.rig = rig = Rig(one, two, **changes)
        rig.ledger = rig.pipeline.ledger = SlowLedger()
        inner = rig.pipeline.backends
        rig.pipeline.backends = {
            "one": SlowBackend(inner["one"], moments, is_deaf=is_deaf),
            "two": SlowBackend(inner["two"]),
        }
        probed = CircuitBreaker()
        probed.record_refusal(rig.pipeline.monotonic() - 60.0, 1.0)  # so that this request is its probe
        rig.pipeline.upstreams.breakers["one", "upstream-a"] = {"": probed}
        self.operation: Operation = "chat.completions"
        self.body: dict[str, Any] = {"model": "auto", "messages": [{"role": "user", "content": "hello"}]}
        self.body |= {"stream": True} if is_stream else {}
        self.cache_seconds: int | None = None

    async def begin(self) -> None: ...

    async def ask(self) -> None:
        await self.answer(SlowCaller())

    async def answer(self, caller: RecordingCaller) -> None:
        body = json.dumps(self.body).encode()
        asked = Incoming(self.operation, f"Bearer {KEY}", body, cache_seconds=self.cache_seconds)
        await self.rig.pipeline.answer(asked, caller)

    async def check(self) -> None:
        rig = self.rig
        assert not any(rig.pipeline.upstreams.running.values())
        assert (rig.one.open_replies, rig.two.open_replies) == (0, 0)
        assert all(
            one.state != "half_open" for keys in rig.pipeline.upstreams.breakers.values() for one in keys.values()
        )
        assert not rig.ledger.open
        assert len(rig.ledger.entries) <= 1
        assert rig.observed.entries == rig.ledger.entries
        assert rig.ledger.entries or not (rig.one.calls or rig.two.calls)


class Limited(Scene):
    """With a budget, a quota, rates and a place."""

    def __init__(self, one: Script | None = None, **more: Any) -> None:
        quotas = {"cheap": {"requests": 9, "window": "month"}}
        limits = parse_limits({"budget_usd": "1", "requests_per_minute": 9, "tier_quotas": quotas})
        shared = SharedLimits(tiers={"cheap": frozenset({"a"})}, models={"a": Rates(max_parallel_requests=1)})
        self._counters = SlowCounters()
        self._admission = Admission(
            limits={"key-1": limits},
            strict={("team", "red"): 10**12},
            shared=shared,
            treasury=Treasury(self._counters),
        )
        super().__init__(one, admission=self._admission, **more)

    async def check(self) -> None:
        await super().check()
        assert not self._admission.treasury.windows_in_use()
        assert await self._counters.enter("the next", [Places("model:a", 1)]) is None


class Cached(Scene):
    def __init__(self, *, is_known: bool) -> None:
        store = cast(ResponseStore, Slow(MemoryResponses()))
        super().__init__(responses=ResponseCache(store))
        self.cache_seconds = 60
        self._is_known = is_known

    async def begin(self) -> None:
        if self._is_known:
            await self.ask()
            for kept in (self.rig.ledger.entries, self.rig.observed.entries, self.rig.one.calls):
                kept.clear()


class Conversation(Scene):
    def __init__(self, **more: Any) -> None:
        store = cast(RecordStore, Slow(MemoryTurns()))
        self._kept = KeptConversations(store, cast(RecordStore, Slow(MemoryTurns())), _secret)
        responses = KeptResponses(MemoryTurns(), _secret)
        super().__init__(kept_conversations=self._kept, kept_responses=responses, **more)
        self.operation = "responses"
        self._name = ""

    async def begin(self) -> None:
        self._name, _ = await self._kept.create(TENANT, b"[]", {})
        del self.body["messages"]
        self.body |= {"input": "hello", "conversation": self._name}

    async def check(self) -> None:
        await super().check()
        async with self._kept.turn(TENANT, self._name):
            head = await self._kept.find(TENANT, self._name)
        assert len(head.ids) in (0, 2)


class InBackground(Scene):
    """Its caller is told of it while it is written. Leaving stands for the worker's stop."""

    def __init__(self, *, is_stream: bool = False) -> None:
        self._kept = KeptResponses(cast(TurnStore, Slow(MemoryTurns())), _secret)
        super().__init__(kept_responses=self._kept, moments=SETTLING_STEPS // 2)
        inner = self.rig.pipeline.backends
        self.rig.pipeline.backends = {name: TranslatingBackend(one) for name, one in inner.items()}
        self.operation = "responses"
        self.body = {"model": "a", "input": "hello", "background": True, "stream": is_stream}
        self._opened = OpenResponses(self._kept)
        self._responses = BackgroundResponses(self.rig.pipeline, self._kept, self._opened)
        self._caller = RecordingCaller()

    async def ask(self) -> None:
        self._caller = caller = SlowCaller()
        body = json.dumps(self.body).encode()
        await self._responses.answer(Incoming(self.operation, f"Bearer {KEY}", body), caller)

    async def check(self) -> None:
        await super().check()
        if named := re.search(rb'"id":"(resp_\w+)"', self._caller.body):
            turn = await self._kept.find(TENANT, named[1].decode())
            assert turn is not None
            assert not turn.is_open


class Once(Scene):
    """With an idempotency key: it is served to its end, and whoever asks again gets its answer."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self._once = Idempotency(cast(IdempotencyStore, Slow(MemoryIdempotency())), lambda _: "red")

    async def ask(self) -> None:
        await self._answer(Sent())

    async def _answer(self, sent: "Sent") -> None:
        async def serve(shared: Sink) -> bool:
            caller = SlowCaller(shared)
            await self.answer(caller)
            return caller.is_complete

        await self._once.answer("key", None, (b"content",), serve, sent)

    async def check(self) -> None:
        sent = Sent()
        async with asyncio.timeout(60.0):  # for ever, if nobody serves it and it is still claimed
            await self._answer(sent)
        assert sent.is_whole
        await self._once.aclose()
        await super().check()


class Sent:
    def __init__(self) -> None:
        self.is_whole = False

    async def start(self, status: int, headers: Headers) -> None:
        await asyncio.sleep(0)

    async def send(self, body: bytes, *, is_last: bool) -> None:
        await asyncio.sleep(0)
        self.is_whole = is_last


def fault(kind: Fault) -> Script:
    return follow([Outcome(fault=kind)])


def hedged(**more: Any) -> Scene:
    scene = Scene(is_stream=True, retry_policy=HEDGING, **more)
    known = scene.rig.pipeline.upstreams.first_tokens["one", "upstream-a"] = FirstTokenTimes()
    for _ in range(20):
        known.record(scene.rig.pipeline.monotonic(), 0.0)
    return scene


def cascaded(**more: Any) -> Scene:
    scene = Scene(follow([Outcome(pieces=())]), **more)
    scene.rig.pipeline.snapshot = make_snapshot(CASCADE, [A, B])
    return scene


def _secret(tenant: str) -> bytes:
    return tenant.encode().ljust(32)


SCENES: dict[str, Callable[[], Scene]] = {
    "whole": Scene,
    "stream": lambda: Scene(is_stream=True),
    "fallback": lambda: Scene(fault("unavailable")),
    "fallback of a stream": lambda: Scene(fault("truncated"), is_stream=True),
    "nobody answers": lambda: Scene(fault("unavailable"), fault("unavailable")),
    "broken off": lambda: Scene(follow([Outcome(fault="reset", fault_after_pieces=2)]), is_stream=True),
    "limited": Limited,
    "limited stream": lambda: Limited(is_stream=True),
    "limited fallback": lambda: Limited(fault("unavailable")),
    "to be cached": lambda: Cached(is_known=False),
    "cached": lambda: Cached(is_known=True),
    "conversation": Conversation,
    "stream of a conversation": lambda: Conversation(is_stream=True),
    "in the background": InBackground,
    "stream in the background": lambda: InBackground(is_stream=True),
    "idempotency key": Once,
    "stream with an idempotency key": lambda: Once(is_stream=True),
    "escalated": cascaded,
    "escalated in vain": lambda: cascaded(two=fault("unavailable")),
    "hedged": lambda: hedged(moments=9),
    "hedged, both at once": lambda: hedged(moments=2),
    "overtaken": lambda: Scene(is_stream=True, retry_policy=OVERTAKING, moments=9),
    "overtaken, and answers": lambda: Scene(is_stream=True, retry_policy=OVERTAKING, moments=9, is_deaf=True),
}


@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.parametrize("name", SCENES)
async def test_who_leaves_at_any_moment_leaves_nothing_behind(name: str, is_late: bool) -> None:
    for at in range(1, MOST_WAITS):
        scene = SCENES[name]()
        await scene.begin()
        before = asyncio.all_tasks()
        leaving = Leaving(scene.ask(), at, is_late=is_late)
        (ended,) = await asyncio.gather(asyncio.create_task(_awaited(leaving)), return_exceptions=True)
        assert ended is None or isinstance(ended, asyncio.CancelledError | BreakevenError)
        for _ in range(SETTLING_STEPS):
            await asyncio.sleep(0)
        await scene.check()
        assert asyncio.all_tasks() == before
        if leaving.waits < at:
            return
    raise AssertionError("it never ended by itself")


async def _awaited(leaving: Leaving) -> None:
    await leaving
