"""Kept conversations: complete or not at all, by tenant, for how long, and one turn at a time."""

import asyncio
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.errors import InvalidRequest, NotFound, Overloaded, StoreDown
from gateway.kept_answers.kept_conversations import LEASE_SECONDS, PIECE_BYTES, Belonging, KeptConversations
from gateway.kept_answers.memory_turns import MemoryTurns
from gateway.kept_answers.record_store import Change, RecordStore
from tests.hand_clock import HandClock

TENANT = "team red"


def secret(tenant: str) -> bytes:
    return tenant.encode().ljust(32, b".")


def items(*texts: str) -> bytes:
    return json.dumps([{"role": "user", "content": text} for text in texts]).encode()


class Seen(MemoryTurns):
    """A store that counts reads, records changes, may be down, and can let concurrent changes come first."""

    def __init__(self, **told: Any) -> None:
        super().__init__(**told)
        self.values: dict[str, bytes] = {}
        self.owners: list[str] = []
        self.is_down = False
        self.before_swap: Callable[[], Any] | None = None

    async def get(self, name: str, seconds: float | None) -> bytes | None:
        self._ask()
        return await super().get(name, seconds)

    async def swap(self, change: Change, seconds: float) -> bool:
        self._ask()
        if (before := self.before_swap) is not None:
            self.before_swap = None
            await before()
        is_swapped = await super().swap(change, seconds)
        if is_swapped:
            self.owners.append(change.owner)
            self.values |= {**change.beside, **({} if change.value is None else {change.name: change.value})}
            for name in (*change.gone, *([change.name] if change.value is None else [])):
                self.values.pop(name, None)
        return is_swapped

    def _ask(self) -> None:
        if self.is_down:
            raise StoreDown("no")


class Kept:
    def __init__(self, store: Seen | None = None, locks: RecordStore | None = None, **told: Any) -> None:
        self.clock = HandClock()
        self.store = store or Seen(monotonic=self.clock)
        self.locks = locks or MemoryTurns(monotonic=self.clock)
        self.conversations = self.another(**told)

    def another(self, **told: Any) -> KeptConversations:
        """The same store in another worker."""
        return KeptConversations(self.store, self.locks, secret, now=self.clock, **told)

    async def texts(self, name: str) -> list[str]:
        head = await self.conversations.find(TENANT, name)
        found = await self.conversations.items(TENANT, name, head.ids)
        said = [json.loads(one.given)["content"] for one in found]
        belonging = await self.conversations.read(TENANT, name)
        assert [one["content"] for one in json.loads(belonging.items)] == said, "a turn is told what is listed"
        return said


async def test_what_is_added_stands_behind_in_few_pieces() -> None:
    kept = Kept()
    name, _ = await kept.conversations.create(TENANT, items("0"), {})
    for number in range(1, 300):
        await kept.conversations.add(TENANT, name, items(f"{number}" + "x" * 500))
    head = await kept.conversations.find(TENANT, name)
    assert len(head.pieces) <= 2 * 300 * 550 // PIECE_BYTES + 1
    assert [text.rstrip("x") for text in await kept.texts(name)] == [f"{one}" for one in range(300)]
    assert len(kept.store.values) == 1 + len(head.pieces), "and of the others nothing is left"


async def test_a_store_that_others_read_tells_nothing_and_what_is_altered_is_not_there() -> None:
    kept = Kept()
    name, _ = await kept.conversations.create(TENANT, items("very secret"), {"topic": "secret"})
    for key, value in kept.store.values.items():
        assert b"secret" not in value
        assert TENANT not in key
    with pytest.raises(NotFound):
        await kept.conversations.find("team blue", name)
    for key, value in dict(kept.store.values).items():
        await kept.store.put(key, value[:-1] + bytes([value[-1] ^ 1]), 60)
    with pytest.raises(NotFound):
        await kept.conversations.find(TENANT, name)


async def test_a_store_can_tell_owners_apart_and_not_who_they_are() -> None:
    kept = Kept()
    for tenant in (TENANT, "team blue"):
        for _ in range(2):
            name, _ = await kept.conversations.create(tenant, items("x"), {})
            await kept.conversations.add(tenant, name, items("y"))
    red, blue = kept.store.owners[:4], kept.store.owners[4:]
    assert len({*red}) == len({*blue}) == 1
    assert red != blue
    assert all(re.fullmatch("[0-9a-f]{16}", owner) for owner in (*red, *blue))


async def test_it_is_kept_since_it_was_last_gone_on_in_and_all_of_it_together() -> None:
    kept = Kept(seconds=100.0)
    name, _ = await kept.conversations.create(TENANT, items("x" * PIECE_BYTES), {})
    kept.clock.now += 60
    await kept.conversations.add(TENANT, name, items("y"))
    kept.clock.now += 60
    async with kept.conversations.turn(TENANT, name):
        pass
    kept.clock.now += 60
    await kept.conversations.describe(TENANT, name, {"a": "b"})
    kept.clock.now += 60
    assert len((await kept.conversations.find(TENANT, name)).ids) == 2
    assert [one[0] for one in await kept.texts(name)] == ["x", "y"]
    kept.clock.now += 101
    with pytest.raises(NotFound, match="unused for too long"):
        await kept.conversations.find(TENANT, name)


async def test_one_of_which_a_piece_made_room_is_gone_whole() -> None:
    kept = Kept()
    name, head = await kept.conversations.create(TENANT, items("x" * PIECE_BYTES), {})
    await kept.conversations.add(TENANT, name, items("y"))
    [piece] = [one for one, value in kept.store.values.items() if len(value) > PIECE_BYTES]
    await kept.store.delete(piece)
    assert len((await kept.conversations.find(TENANT, name)).ids) == 2, "nobody has looked"
    with pytest.raises(NotFound, match="had to make room"):
        await kept.conversations.read(TENANT, name)
    with pytest.raises(NotFound):
        await kept.conversations.find(TENANT, name)
    assert not set(kept.store.values) - {piece}
    assert head.ids


async def test_a_turn_is_alone_until_it_has_ended_however_that_is() -> None:
    kept = Kept()
    name, _ = await kept.conversations.create(TENANT, items("x"), {})
    other = kept.another()

    async def turn() -> None:
        async with kept.conversations.turn(TENANT, name) as belonging:
            assert json.loads(belonging.items)[0]["content"] == "x"
            with pytest.raises(InvalidRequest, match="Another request is using") as refused:
                async with other.turn(TENANT, name):
                    pass
            assert refused.value.code == "conversation_locked"
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await turn()
    async with other.turn(TENANT, name):
        pass
    with pytest.raises(NotFound):
        async with kept.conversations.turn(TENANT, f"{name}0"):
            pass
    with pytest.raises(NotFound):
        async with kept.conversations.turn(TENANT, f"{name}0"):
            pass


class Overtaken(MemoryTurns):
    """Whoever takes a lock has left, or is told of an outage, when it is taken."""

    asking: asyncio.Task[None] | None = None

    async def swap(self, change: Change, seconds: float) -> bool:
        asking, self.asking = self.asking, None
        is_swapped = await super().swap(change, seconds)
        if asking is not None:
            asking.cancel()
            await asyncio.sleep(0)
        elif change.was is None:
            raise StoreDown("it took too long")
        return is_swapped


async def test_who_leaves_or_waits_too_long_while_a_turn_begins_locks_nobody_out() -> None:
    locks = Overtaken()
    kept = Kept(locks=locks)
    name, _ = await kept.conversations.create(TENANT, items("x"), {})

    async def turn() -> None:
        async with kept.conversations.turn(TENANT, name):
            raise AssertionError("it has no lock")

    for error in (asyncio.CancelledError, Overloaded):
        asking = asyncio.create_task(turn())
        locks.asking = asking if error is asyncio.CancelledError else None
        with pytest.raises(error):
            await asking
        assert not locks._turns._kept, "the lock is nobody's"  # pyright: ignore[reportPrivateUsage]


async def test_of_a_worker_that_was_killed_the_lock_ends() -> None:
    kept = Kept()
    name, _ = await kept.conversations.create(TENANT, items("x"), {})
    held = kept.conversations.turn(TENANT, name)
    await held.__aenter__()
    kept.clock.now += LEASE_SECONDS + 1  # and nobody has renewed it
    async with kept.another().turn(TENANT, name):
        await held.__aexit__(None, None, None)
        with pytest.raises(InvalidRequest, match="Another request"):
            async with kept.another().turn(TENANT, name):
                pass


async def test_what_others_add_during_a_turn_stays_and_the_turns_items_are_not_torn_apart() -> None:
    kept = Kept()
    name, _ = await kept.conversations.create(TENANT, items("0"), {})
    belonging = Belonging(TENANT, name, b"[]")

    async def turn(number: int) -> None:
        raw = [json.dumps({"role": "user", "content": f"{number}{part}"}).encode() for part in "abc"]
        assert await kept.another().append(belonging, raw)

    async def add(number: int) -> None:
        await kept.another().add(TENANT, name, items(f"added {number}"))

    await asyncio.gather(*(one(number) for number in range(8) for one in (turn, add)))
    texts = await kept.texts(name)
    assert len(texts) == 1 + 8 * 4
    for number in range(8):
        place = texts.index(f"{number}a")
        assert texts[place : place + 3] == [f"{number}{part}" for part in "abc"]


async def test_who_was_not_the_first_tries_again_and_a_reader_too() -> None:
    kept = Kept()
    name, _ = await kept.conversations.create(TENANT, items("0"), {})
    other = kept.another()
    kept.store.before_swap = lambda: other.add(TENANT, name, items("1"))
    await kept.conversations.add(TENANT, name, items("2"))
    assert await kept.texts(name) == ["0", "1", "2"]
    kept.store.before_swap = lambda: other.delete(TENANT, name)
    with pytest.raises(NotFound):
        await kept.conversations.add(TENANT, name, items("3"))
    assert not kept.store.values


async def test_a_turn_that_cannot_be_kept_says_so_and_raises_nothing() -> None:
    kept = Kept()
    name, _ = await kept.conversations.create(TENANT, items("0"), {})
    belonging = Belonging(TENANT, name, b"[]")
    assert not await kept.conversations.append(belonging, [b"1"])
    kept.store.is_down = True
    assert not await kept.conversations.append(belonging, [b'{"role":"user","content":"1"}'])
    for asking in (kept.conversations.find(TENANT, name), kept.conversations.create(TENANT, items("0"), {})):
        with pytest.raises(Overloaded, match="try again"):
            await asking
    kept.store.is_down = False
    assert await kept.texts(name) == ["0"]
    await kept.conversations.delete(TENANT, name)
    assert not await kept.conversations.append(belonging, [b'{"role":"user","content":"1"}'])


@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 10**6), st.integers(1, 40_000)), max_size=30))
def test_whatever_is_added_and_removed_the_rest_stands_in_its_order(steps: list[tuple[bool, int, int]]) -> None:
    async def go() -> None:
        kept = Kept()
        name, _ = await kept.conversations.create(TENANT, b"[]", {})
        expected: list[tuple[str, str]] = []
        for adds, number, size in steps:
            if adds or not expected:
                [added] = await kept.conversations.add(TENANT, name, items(f"{number:09}" + "x" * size))
                expected.append((added.id, f"{number:09}"))
            else:
                gone, _ = expected.pop(number % len(expected))
                head = await kept.conversations.remove(TENANT, name, gone)
                assert head.ids == [one for one, _ in expected]
                with pytest.raises(NotFound):
                    await kept.conversations.remove(TENANT, name, gone)
        assert [text[:9] for text in await kept.texts(name)] == [text for _, text in expected]
        head = await kept.conversations.find(TENANT, name)
        assert len(kept.store.values) == 1 + len(head.pieces)

    asyncio.run(go())
