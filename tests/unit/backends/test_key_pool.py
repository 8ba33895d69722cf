"""Key pools: which key is chosen, which are full, and that slots are released."""

import pytest
from msgspec.structs import replace

from backends.errors import RateLimited, UpstreamUnavailable
from backends.key_pool import KeyLimits, KeyPool, PooledKey
from backends.protocol import Call
from backends.scripted import Outcome, ScriptedBackend, follow
from tests.hand_clock import HandClock

CALL = Call("chat.completions", "m", b"{}", False, "r-1")


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
    pool = KeyPool("pool", keys, clock=HandClock())
    for _ in range(12):
        await ask(pool)
    assert used(*keys) == [4, 8]
    with pytest.raises(RateLimited) as caught:
        await ask(pool)
    assert caught.value.retry_after_seconds == 60
    assert used(*keys) == [4, 8]


async def test_the_key_with_the_larger_part_left_is_first_and_of_equals_the_one_used_less() -> None:
    pool = KeyPool("pool", [make_key("a", requests=4), make_key("b", requests=8)], clock=HandClock())
    for expected in (["a", "b"], ["b", "a"], ["b", "a"], ["a", "b"]):
        assert pool.labels_by_room() == expected
        await ask(pool)


async def test_the_window_slides() -> None:
    clock = HandClock()
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
    pool = KeyPool("pool", [key], clock=HandClock())
    reply = await pool.open(CALL)
    with pytest.raises(RateLimited):
        await pool.open(CALL)
    await reply.aclose()
    await reply.aclose()
    assert key.under_way == 0
    await ask(pool)


async def test_the_caller_may_say_which_key_and_a_full_one_is_not_called() -> None:
    keys = [make_key("a", concurrent=1), make_key("b")]
    pool = KeyPool("pool", keys, clock=HandClock())
    assert pool.labels() == ("a", "b")
    held = await pool.open(replace(CALL, key="a"))
    assert pool.labels_by_room() == ["b"]
    with pytest.raises(RateLimited) as caught:
        await pool.open(replace(CALL, key="a"))
    assert caught.value.status is None, "nothing was sent"
    await held.aclose()
    assert used(*keys) == [1, 0]


async def test_all_full_names_the_one_that_is_free_soonest() -> None:
    clock = HandClock()
    pool = KeyPool("pool", [make_key("a", requests=1), make_key("b", requests=1)], clock=clock)
    await ask(pool)
    clock.now += 10
    await ask(pool)
    assert pool.labels_by_room() == ("a",)
    assert pool.wait_seconds() == pytest.approx(50)


async def test_a_failed_call_gives_its_slot_back() -> None:
    key = make_key("a", Outcome(fault="unavailable"), Outcome())
    pool = KeyPool("pool", [key], clock=HandClock())
    with pytest.raises(UpstreamUnavailable):
        await ask(pool)
    assert key.under_way == 0
    await ask(pool)
    assert (await pool.health()).is_healthy
    assert pool.is_simulated
    await pool.aclose()


def test_an_empty_pool_is_a_mistake_and_so_are_twins() -> None:
    with pytest.raises(ValueError, match="at least one key"):
        KeyPool("pool", [])
    with pytest.raises(ValueError, match="same label"):
        KeyPool("pool", [make_key("a"), make_key("a")])
