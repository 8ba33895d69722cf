"""Sessions end when they should, and guessing gets slower."""

from dashboards.sign_in.sessions import IDLE_SECONDS, LONGEST_SECONDS, FormTokens, Sessions, SignInLimit
from tests.hand_clock import HandClock


def start(sessions: Sessions) -> str:
    return sessions.start("bk-secret", "ann", "owner", frozenset({"rules.write"}))[0]


def test_a_session_is_found_by_its_secret_alone() -> None:
    sessions = Sessions(HandClock())
    secret = start(sessions)
    found = sessions.find(secret)
    assert found is not None
    assert found.may("rules.write")
    assert not found.may("keys.write")
    assert sessions.find(secret + "x") is sessions.find(None) is sessions.find("") is None
    assert "bk-secret" not in repr(found)


def test_it_ends_when_idle_when_old_and_when_told() -> None:
    clock = HandClock()
    sessions = Sessions(clock)
    idle = start(sessions)
    clock.now += IDLE_SECONDS + 1
    assert sessions.find(idle) is None
    busy = start(sessions)
    for _ in range(int(LONGEST_SECONDS / IDLE_SECONDS)):
        clock.now += IDLE_SECONDS - 1
        assert sessions.find(busy) is not None
    clock.now += IDLE_SECONDS - 1
    assert sessions.find(busy) is None
    told = start(sessions)
    sessions.end(told)
    assert sessions.find(told) is None


def test_a_clock_that_is_put_back_far_makes_no_session_longer_and_a_little_ends_none() -> None:
    clock = HandClock()
    sessions = Sessions(clock)
    one = start(sessions)
    clock.now -= 3600
    assert sessions.find(one) is not None
    clock.now -= IDLE_SECONDS + 1
    assert sessions.find(one) is None


def test_to_ask_whether_it_is_good_does_not_prolong_it() -> None:
    clock = HandClock()
    sessions = Sessions(clock)
    open_page = start(sessions)
    for _ in range(2):
        assert sessions.is_good(open_page)
        clock.now += IDLE_SECONDS / 2 + 1
    assert not sessions.is_good(open_page)
    told = start(sessions)
    sessions.end(told)
    assert not sessions.is_good(told)
    assert not sessions.is_good(None)


def test_there_are_never_more_than_the_limit() -> None:
    clock = HandClock()
    sessions = Sessions(clock, most=50)
    first = start(sessions)
    others: list[str] = []
    for _ in range(49):
        clock.now += 0.01
        others.append(start(sessions))
    assert sessions.find(first) is not None
    clock.now += 1
    newest = start(sessions)
    assert sessions.find(first) is not None, "it was just used"
    assert sessions.find(others[0]) is None, "the one unused for longest had to go"
    assert sessions.find(others[-1]) is not None
    assert sessions.find(newest) is not None


def test_each_wrong_key_after_five_doubles_the_wait() -> None:
    clock = HandClock()
    limit = SignInLimit(clock)
    waits: list[float] = []
    for _ in range(8):
        limit.failed("1.2.3.4")
        waits.append(limit.wait_seconds("1.2.3.4"))
        clock.now += waits[-1]
    assert waits == [0, 0, 0, 0, 2, 4, 8, 16]
    assert limit.wait_seconds("5.6.7.8") == 0
    limit.succeeded("1.2.3.4")
    assert limit.wait_seconds("1.2.3.4") == 0


def test_of_too_many_addresses_the_one_that_failed_longest_ago_is_forgotten() -> None:
    limit = SignInLimit(HandClock(), most=2)
    for address in ("1.1.1.1", "2.2.2.2", "1.1.1.1", "3.3.3.3"):
        for _ in range(5):
            limit.failed(address)
    assert limit.wait_seconds("2.2.2.2") == 0
    assert limit.wait_seconds("1.1.1.1") > limit.wait_seconds("3.3.3.3") > 0


def test_a_form_token_belongs_to_its_cookie() -> None:
    tokens = FormTokens()
    assert tokens.is_good("a", tokens.token("a"))
    assert not tokens.is_good("b", tokens.token("a"))
    assert not tokens.is_good(None, tokens.token("a"))
    assert not tokens.is_good("a", None)
    assert not FormTokens().is_good("a", tokens.token("a"))
