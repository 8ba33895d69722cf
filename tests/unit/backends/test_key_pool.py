"""Key pools: who is picked, who rests, and that slots come back."""

import pytest

from backends.errors import BackendError, RateLimited, UpstreamAuth, UpstreamUnavailable
from backends.key_pool import REST_AFTER_AUTH_SECONDS, REST_AFTER_REFUSAL_SECONDS, KeyLimits, KeyPool, PooledKey
from backends.protocol import Call
from backends.scripted import Outcome, ScriptedBackend, follow

CALL = Call("chat.completions", "m", b"{}", False, "r-1")


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def make_key(label: str, *outcomes: Outcome, requests: int | None = None, concurrent: int | None = None) -> PooledKey:
    backend = ScriptedBackend(label, follow(outcomes or (Outcome(),)), keeps_calls=True)
    return PooledKey(label, backend, KeyLimits(requests, concurrent))


def used(*keys: PooledKey) -> list[int]:
    return [len(key.backend.calls) for key in keys if isinstance(key.backend, ScriptedBackend)]


async def ask(pool: KeyPool) -> None:
    reply = await pool.open(CALL)
    assert [chunk async for chunk in reply][-1].is_done
    await reply.aclose()


async def test_work_is_spread_by_room() -> None:
    keys = [make_key("a", requests=4), make_key("b", requests=8)]
    pool = KeyPool("pool", keys, clock=Clock())
    for _ in range(12):
        await ask(pool)
    assert used(*keys) == [4, 8]
    with pytest.raises(RateLimited) as caught:
        await ask(pool)
    assert caught.value.retry_after_seconds == 60
    assert used(*keys) == [4, 8]


async def test_the_window_slides() -> None:
    clock = Clock()
    pool = KeyPool("pool", [make_key("a", requests=1)], clock=clock)
    await ask(pool)
    clock.now += 59
    with pytest.raises(RateLimited) as caught:
        await ask(pool)
    assert caught.value.retry_after_seconds == pytest.approx(1)
    clock.now += 1
    await ask(pool)


async def test_slots_come_back_when_a_reply_is_closed_once() -> None:
    key = make_key("a", concurrent=1)
    pool = KeyPool("pool", [key], clock=Clock())
    reply = await pool.open(CALL)
    with pytest.raises(RateLimited):
        await pool.open(CALL)
    await reply.aclose()
    await reply.aclose()
    assert key.under_way == 0
    await ask(pool)


RESTS: list[tuple[Outcome, type[BackendError], float]] = [
    (Outcome(fault="rate_limited", retry_after_seconds=7), RateLimited, 7),
    (Outcome(fault="rate_limited"), RateLimited, REST_AFTER_REFUSAL_SECONDS),
    (Outcome(fault="auth"), UpstreamAuth, REST_AFTER_AUTH_SECONDS),
]


@pytest.mark.parametrize(("outcome", "kind", "seconds"), RESTS)
async def test_a_refused_key_rests_and_another_serves(
    outcome: Outcome, kind: type[BackendError], seconds: float
) -> None:
    clock = Clock()
    tired, fresh = make_key("a", outcome, Outcome()), make_key("b", concurrent=1)
    pool = KeyPool("pool", [tired, fresh], clock=clock)
    with pytest.raises(kind):
        await ask(pool)
    await ask(pool)
    assert used(tired, fresh) == [1, 1]
    clock.now += seconds
    held = await pool.open(CALL)
    await ask(pool)
    await held.aclose()
    assert used(tired, fresh) == [2, 2]


async def test_a_providers_own_trouble_does_not_tire_the_key() -> None:
    key = make_key("a", Outcome(fault="unavailable"), Outcome())
    pool = KeyPool("pool", [key], clock=Clock())
    with pytest.raises(UpstreamUnavailable):
        await ask(pool)
    assert key.under_way == 0
    await ask(pool)


async def test_health_while_every_key_rests() -> None:
    pool = KeyPool("pool", [make_key("a", Outcome(fault="auth"))], clock=Clock())
    assert (await pool.health()).is_healthy
    with pytest.raises(UpstreamAuth):
        await ask(pool)
    assert not (await pool.health()).is_healthy
    assert pool.is_simulated
    await pool.aclose()


def test_an_empty_pool_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="at least one key"):
        KeyPool("pool", [])
