"""Strict budgets of teams, projects and the deployment: their keys together never overspend them."""

import asyncio
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import BudgetExhausted
from gateway.limits.admission import Admission
from gateway.limits.counters import Account, budget_account
from gateway.limits.values import BudgetScope, parse_limits, window_id
from tests.rig import Rig
from tests.unit.gateway.ledger.builders import make_entry

NOW_US = 1_795_000_000_000_000
MICRO = 10**6
MONTH = window_id("month", NOW_US)
Strict = dict[tuple[BudgetScope, str], int]


def admission(strict: Strict, *, keys: Mapping[str, int] | None = None, wait_seconds: float = 0.0) -> Admission:
    """`keys` have budgets of their own, in pico-USD."""
    limits = {key: parse_limits({"budget_usd": f"{budget}e-12"}) for key, budget in (keys or {}).items()}
    return Admission(limits=limits, strict=strict, wait_seconds=wait_seconds)


async def reserve(
    limited: Admission, request_id: str, amount: int | None, *, key: str = "k", project: str | None = None
) -> None:
    await limited.reserve(request_id, key, amount, now_us=NOW_US, team="red", project=project)


async def test_keys_of_a_team_spend_one_budget_and_are_told_whose_it_is() -> None:
    limited = admission({("team", "red"): 100 * MICRO})
    await reserve(limited, "a", 60 * MICRO, key="one")
    with pytest.raises(BudgetExhausted, match=r"The budget of the team 'red' is \$0\.000100 per month") as caught:
        await reserve(limited, "b", 41 * MICRO, key="two")
    assert "$0.000060 is held by requests under way" in caught.value.message
    await limited.reserve("other team", "three", 1000 * MICRO, now_us=NOW_US, team="blue")
    limited.settle("a", 10 * MICRO)
    await reserve(limited, "b", 90 * MICRO, key="two")


@pytest.mark.parametrize(
    ("strict", "whose"),
    [
        ({("project", "search"): 5}, r"the project 'search' is \$"),
        ({("all", ""): 5}, "this deployment for this month has too little left"),
    ],
)
async def test_a_project_and_everything_have_budgets_too(strict: Strict, whose: str) -> None:
    limited = admission(strict)
    await reserve(limited, "a", 5, project="search")
    with pytest.raises(BudgetExhausted, match=f"The budget of {whose}"):
        await reserve(limited, "b", 1, project="search")


async def test_what_one_budget_refuses_is_held_in_no_other() -> None:
    limited = admission({("team", "red"): 100, ("all", ""): 50}, keys={"k": 200})
    with pytest.raises(BudgetExhausted, match="this deployment"):
        await reserve(limited, "a", 60)
    await reserve(limited, "b", 50)
    limited.settle("b", 0)
    limited.strict = {("team", "red"): 100}
    await reserve(limited, "c", 100)
    limited.settle("c", 0)
    limited.strict = {}
    await reserve(limited, "d", 200)


async def test_a_stream_goes_on_only_while_every_budget_has_money() -> None:
    limited = admission({("team", "red"): 100}, keys={"k": 1000})
    await reserve(limited, "a", 40)
    for amount, is_enough in ((80, True), (101, False), (100, True)):
        assert await limited.fund("a", amount) is is_enough
        assert limited.extend("a", amount) is is_enough
    limited.settle("a", 90)
    with pytest.raises(BudgetExhausted, match="team 'red'"):
        await reserve(limited, "b", 11)
    await reserve(limited, "b", 10)


async def test_unknown_prices_are_refused_under_a_strict_budget() -> None:
    with pytest.raises(BudgetExhausted, match="a strict budget of the team 'red', so the model cannot be used"):
        await reserve(admission({("team", "red"): 100}), "a", None)


async def test_a_charge_in_the_books_is_not_counted_twice_in_any_budget() -> None:
    entry = make_entry(1)
    team, own = budget_account("red", MONTH, scope="team"), budget_account("k", MONTH)
    limited, booked = admission({("team", "red"): 100}, keys={"k": 80}), {team: 30, own: 20}

    async def books() -> dict[Account, int]:
        return dict(booked)

    await limited.treasury.counters.read_books(books)
    await reserve(limited, entry.intent.request_id, 50)
    limited.settle(entry.intent.request_id, 45)
    limited.sending([entry.intent.request_id])
    limited.shipped([entry.intent.request_id])
    await limited.treasury.report()
    booked |= {team: 75, own: 65}
    await limited.treasury.counters.read_books(books)
    await limited.treasury.report()
    with pytest.raises(BudgetExhausted, match="of this key"):
        await reserve(limited, "b", 16)
    await reserve(limited, "b", 15)
    with pytest.raises(BudgetExhausted, match="team 'red'"):
        await reserve(limited, "c", 11, key="another")
    await reserve(limited, "c", 10, key="another")


async def test_the_whole_path_stops_at_the_teams_budget() -> None:
    rig = Rig(admission=Admission(strict={("team", "red"): 1}, wait_seconds=0.0))
    with pytest.raises(BudgetExhausted, match="team 'red'"):
        await rig.ask()
    assert not rig.ledger.entries
    rig.pipeline.admission.strict = {("team", "another"): 1}
    await rig.ask()
    assert len(rig.ledger.entries) == 1


@pytest.mark.parametrize("team_budget", [20_000, 31_000])
async def test_a_thousand_at_once_spend_what_there_is_and_no_more(team_budget: int) -> None:
    """Four keys of one team, each request holding 100 and costing 40, compared with the same requests in sequence."""
    keys = {f"key{number}": 8000 for number in range(4)}
    serial, spent = 0, 0
    while spent + 100 <= team_budget and serial < len(keys) * ((8000 - 100) // 40 + 1):
        serial, spent = serial + 1, spent + 40
    limited = admission({("team", "red"): team_budget}, keys=keys, wait_seconds=600.0)
    admitted = dict.fromkeys(keys, 0)

    async def one(number: int) -> None:
        key = f"key{number % 4}"
        try:
            await reserve(limited, str(number), 100, key=key)
        except BudgetExhausted:
            return
        admitted[key] += 1
        await asyncio.sleep(0)
        limited.settle(str(number), 40)

    await asyncio.gather(*(one(number) for number in range(1000)))
    assert sum(admitted.values()) * 40 <= team_budget
    assert all(count * 40 <= 8000 for count in admitted.values())
    assert sum(admitted.values()) == serial


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 50), st.integers(0, 50), st.booleans()), max_size=60),
    st.integers(0, 300),
    st.integers(0, 400),
)
async def test_settled_and_held_pass_neither_budget_and_nobody_is_refused_for_nothing(
    requests: list[tuple[str, int, int, bool]], key_budget: int, team_budget: int
) -> None:
    limited = admission({("team", "red"): team_budget}, keys={"a": key_budget})
    spent, held = {"a": 0, "b": 0}, dict[str, tuple[str, int]]()

    def gone(key: str) -> int:
        return spent[key] + sum(amount for whose, amount in held.values() if whose == key)

    for number, (key, amount, cost, ends_one) in enumerate(requests):
        fits = gone("a") + gone("b") + amount <= team_budget and (key == "b" or gone("a") + amount <= key_budget)
        try:
            await reserve(limited, str(number), amount, key=key)
            held[str(number)] = key, amount
            assert fits, "admitted although it did not fit"
        except BudgetExhausted:
            assert not fits, "a false refusal"
        if ends_one and held:
            name, (whose, kept) = held.popitem()
            limited.settle(name, min(cost, kept))
            spent[whose] += min(cost, kept)
        assert gone("a") <= key_budget
        assert gone("a") + gone("b") <= team_budget
