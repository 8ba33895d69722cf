"""Whose bodies make room: only those of a key with more than half of all places, oldest first."""

import asyncio

import pytest

from gateway.api.unread_bodies import UnreadBodies


@pytest.mark.parametrize(
    ("places", "bodies", "asks", "is_given_up"),
    [
        (4, "aaa", "b", True),
        (4, "aaa", "a", False),
        (4, "aa", "b", False),
        (5, "aab", "c", False),
        (5, "aaab", "c", True),
        (5, "baaa", "b", True),
        (3, "", "a", False),
        (1, "a", "b", True),
    ],
)
def test_room_is_made_by_who_has_more_than_half(places: int, bodies: str, asks: str, *, is_given_up: bool) -> None:
    unread = UnreadBodies(places)
    begun = [unread.begin(key) for key in bodies]
    assert unread.make_room_for(asks) is is_given_up
    oldest = next((body for body in begun if body.key_id == "a"), None)
    assert [body for body in begun if body.is_given_up] == ([oldest] if is_given_up else [])


def test_who_has_made_room_or_is_here_is_not_asked_to_again() -> None:
    unread = UnreadBodies(4)
    begun = [unread.begin("a") for _ in range(4)]
    assert unread.make_room_for("b")
    assert unread.make_room_for("b")
    assert not unread.make_room_for("b")
    assert [body.is_given_up for body in begun] == [True, True, False, False]
    for body in (*begun, *begun):
        unread.end(body)
    again = [unread.begin("a") for _ in range(3)]
    unread.end(again[0])
    assert not unread.make_room_for("b")


async def test_what_is_waited_for_ends_and_what_has_ended_already_does_no_harm() -> None:
    unread = UnreadBodies(1)
    body = unread.begin("a")

    async def wait_for_it() -> None:
        async with asyncio.timeout(3600) as body.timeout:
            assert unread.make_room_for("b")
            body.give_up()
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await wait_for_it()
    body.give_up()
    assert body.is_given_up
