"""Hourly prices that change: what each hour costs, and what a start of the gateway adds to the history."""

from dataclasses import replace

import pytest

from gateway.economics.rent import GpuRent, histories, rents_begun

CHEAP = GpuRent("local", "local", 0, 2)
DEAR = replace(CHEAP, from_hour=100, hour_pico_usd=5)
GONE = replace(CHEAP, from_hour=120, hour_pico_usd=None)
OTHER = GpuRent("vllm", "us", 0, 7)


@pytest.mark.parametrize(
    ("start", "end", "cost", "hours"),
    [
        (0, 10, 20, 10),
        (90, 110, 10 * 2 + 10 * 5, 20),
        (99, 100, 2, 1),
        (100, 101, 5, 1),
        (110, 500, 10 * 5, 10),
        (120, 500, 0, 0),
        (50, 50, 0, 0),
    ],
)
def test_every_hour_has_the_price_that_was_in_force(start: int, end: int, cost: int, hours: int) -> None:
    [history] = histories([GONE, CHEAP, DEAR])
    assert (history.pico_usd(start, end), history.hours(start, end)) == (cost, hours)


def test_any_cut_of_a_period_costs_the_same() -> None:
    [history] = histories([CHEAP, DEAR, GONE])
    whole = history.pico_usd(80, 130)
    assert all(history.pico_usd(80, cut) + history.pico_usd(cut, 130) == whole for cut in range(80, 131))


def test_backends_are_kept_apart() -> None:
    assert [(one.backend, one.provider, one.hour_pico_usd) for one in histories([OTHER, DEAR, CHEAP])] == [
        ("local", "local", 5),
        ("vllm", "us", 7),
    ]


@pytest.mark.parametrize(
    ("known", "present", "added"),
    [
        ([], [CHEAP, OTHER], [CHEAP, OTHER]),
        ([CHEAP], [CHEAP], []),
        ([CHEAP], [replace(CHEAP, hour_pico_usd=5)], [DEAR]),
        ([CHEAP, DEAR], [replace(CHEAP, hour_pico_usd=5)], []),
        ([CHEAP, DEAR], [CHEAP], [replace(CHEAP, from_hour=100)]),
        ([CHEAP], [], [replace(GONE, from_hour=100)]),
        ([CHEAP, replace(GONE, from_hour=50)], [], []),
        ([CHEAP], [CHEAP, OTHER], [replace(OTHER, from_hour=100)]),
        ([replace(CHEAP, hour_pico_usd=None)], [CHEAP], [replace(CHEAP, from_hour=100)]),
        ([OTHER], [replace(OTHER, provider="them")], [replace(OTHER, provider="them", from_hour=100)]),
    ],
    ids=[
        "the first look holds for all before",
        "nothing new",
        "dearer",
        "dearer already",
        "back to the old price",
        "given back",
        "given back already",
        "one more",
        "switched on",
        "another provider",
    ],
)
def test_what_a_start_adds(known: list[GpuRent], present: list[GpuRent], added: list[GpuRent]) -> None:
    assert rents_begun(known, present, 100) == added
    assert rents_begun([*known, *added], present, 200) == [], "the next start adds nothing"
