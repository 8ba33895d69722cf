"""What refusals taught, and for how long."""

from backends.learned import FORGOTTEN_SECONDS, MOST, Learned, of_tools
from tests.hand_clock import HandClock


def test_it_is_known_for_an_hour_however_often_it_is_confirmed() -> None:
    clock = HandClock()
    learned = Learned[str, int](clock)
    learned.put("a", 1)
    clock.now += FORGOTTEN_SECONDS - 1
    learned.put("a", 2)
    assert learned.get("a") == 2
    clock.now += 1
    assert "a" not in learned
    learned.put("a", 3)
    assert "a" in learned


def test_the_oldest_goes_for_the_newest() -> None:
    learned = Learned[int, bool]()
    for key in range(MOST + 1):
        learned.put(key, True)
    assert (0 in learned, 1 in learned, MOST in learned) == (False, True, True)


def test_a_key_of_tools_is_of_all_their_bytes() -> None:
    bodies = (b'{"tools":[1],"x":2}', b'{"y":1, "tools":[1]}', b'{"tools":[2]}', b"{}", b"[")
    first, same, other, none, invalid = (of_tools("m", body) for body in bodies)
    assert first == same
    assert len({first, other, of_tools("n", bodies[0])} - {None}) == 3
    assert (none, invalid) == (None, None)
