"""When a notice of a budget is due, and what it says."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from gateway.instants import microseconds
from gateway.limits.values import WindowName, window_id
from gateway.notices.notice import BudgetSpent, NoticeScope, document, due

USD = 10**12
NOW_US = microseconds(datetime(2026, 11, 11, 15, tzinfo=UTC))
SHARES = (800, 950, 1000)
NOVEMBER = window_id("month", NOW_US)


def spent(pico_usd: int, amount: int = 100 * USD, *, window: WindowName = "month", stops: bool = False) -> BudgetSpent:
    return BudgetSpent("team", "red", "red", window_id(window, NOW_US), amount, pico_usd, stops)


@pytest.mark.parametrize(
    ("pico_usd", "told", "share"),
    [
        (0, (), None),
        (80 * USD - 1, (), None),
        (80 * USD, (), 800),
        (94 * USD, (800,), None),
        (95 * USD, (800,), 950),
        (100 * USD, (800, 950), 1000),
        (170 * USD, (800, 950, 1000), None),
        (170 * USD, (), 1000),  # several at once: the highest alone
        (96 * USD, (1000,), None),  # a correction brought it back
    ],
)
def test_a_share_is_due_when_it_is_first_reached(pico_usd: int, told: tuple[int, ...], share: int | None) -> None:
    found = spent(pico_usd)
    mark = due(found, SHARES, [found.mark(one) for one in told])
    assert mark == (None if share is None else found.mark(share))


def test_another_amount_window_or_budget_was_not_told_of() -> None:
    found = spent(85 * USD)
    told = found.mark(1000)
    others = [
        replace(told, amount_pico_usd=50 * USD),
        replace(told, window_id="month:2026-10-01"),
        replace(told, name="blue"),
        replace(told, scope="project"),
    ]
    assert due(found, SHARES, others) == found.mark(800)
    assert due(found, SHARES, [*others, told]) is None


def test_a_budget_of_nothing_has_no_shares() -> None:
    assert due(spent(0, amount=0), SHARES, []) is None
    assert due(spent(5, amount=0), SHARES, []) is None


def test_a_notice_says_all_of_it_in_plain_fields_and_in_a_sentence() -> None:
    found = spent(81_230_000_000_001, stops=True)
    said = document(found, found.mark(800), page="https://ui.example/ui/budgets")
    sentence = (
        "The budget of team red is 81 % spent this month, $81.23 of $100.00; its window ends at 00:00 UTC on "
        "1 Dec 2026. What would pass it is refused. https://ui.example/ui/budgets"
    )
    assert said == {
        "event": "budget_share_reached",
        "is_test": False,
        "scope": "team",
        "name": "red",
        "key_id": None,
        "window": "month",
        "window_starts": "2026-11-01T00:00:00Z",
        "window_ends": "2026-12-01T00:00:00Z",
        "amount_usd": "100.000000000000",
        "spent_usd": "81.230000000001",
        "spent_share": 0.8123,
        "reached_share": 0.8,
        "stops": True,
        "page": "https://ui.example/ui/budgets",
        "text": sentence,
        "content": sentence,
        "allowed_mentions": {"parse": []},
    }


@pytest.mark.parametrize(
    ("scope", "window", "says"),
    [
        ("all", "month", "The budget of everything is 99 % spent this month, $99.99 of $100.00; its window"),
        ("key", "day", "The budget of key red is 99 % spent today, $99.99 of $100.00; its window ends at 00:00 UTC"),
        ("project", "total", "The budget of project red is 99 % spent in all, $99.99 of $100.00. It warns only"),
    ],
)
def test_each_kind_of_budget_is_named(scope: NoticeScope, window: WindowName, says: str) -> None:
    found = replace(spent(99_990_000_000_000, window=window), scope=scope)
    said = document(found, found.mark(800), page=None)
    assert str(said["text"]).startswith(says)
    assert (said["window_ends"] is None) == (said["window_starts"] is None) == (window == "total")
    assert said["key_id"] == ("red" if scope == "key" else None)


def test_a_name_is_no_command_to_a_chat() -> None:
    found = replace(spent(80 * USD), shown="<!channel>")
    said = document(found, found.mark(800), page=None)
    assert "<" not in str(said["text"])
    assert said["name"] == "<!channel>"


def test_a_test_says_that_it_is_one() -> None:
    found = spent(80 * USD)
    said = document(found, found.mark(800), page=None, is_test=True)
    assert said["is_test"] is True
    assert str(said["text"]).startswith("A test, no budget of yours: ")
