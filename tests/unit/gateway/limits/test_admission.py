import asyncio
from contextlib import nullcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import BudgetExhausted, ModelLimited, Overloaded, RateLimitExceeded
from gateway.instants import DAY_US
from gateway.ledger.entry import SHADOW
from gateway.limits.admission import Admission
from gateway.limits.counters import Account, budget_account
from gateway.limits.local_counters import LocalCounters
from gateway.limits.treasury import Treasury
from gateway.limits.values import Rates, SharedLimits, parse_limits, window_end, window_id
from tests.hand_clock import HandClock
from tests.unit.gateway.ledger.builders import make_entry, make_intent

SECOND_US = 1_000_000
NOW_US = 1_795_000_000 * SECOND_US
MONTH = window_id("month", NOW_US)


def admission(
    *, shared: SharedLimits | None = None, clock: HandClock | None = None, wait_seconds: float = 0.0, **limits: object
) -> Admission:
    clock = clock or HandClock()
    return Admission(
        limits={"k": parse_limits(limits)},
        shared=shared or SharedLimits(),
        treasury=Treasury(LocalCounters(clock=clock)),
        wait_seconds=wait_seconds,
    )


async def reserve(limited: Admission, request_id: str, amount: int | None, *, now_us: int = NOW_US) -> None:
    await limited.reserve(request_id, "k", amount, now_us=now_us)


async def test_no_limits_means_no_limit() -> None:
    free = Admission()
    for number in range(1000):
        await free.admit("k", tokens=10**9)
        await free.reserve(str(number), "k", None, now_us=NOW_US)
    assert not free.has_budget("k")


@pytest.mark.parametrize(
    ("limited", "key"),
    [
        (admission(budget_usd="1"), "k"),
        (admission(end_user_budget_usd="1"), "k"),
        (admission(tier_quotas={"premium": {"requests": 1, "window": "day"}}), "k"),
        (Admission(strict={("team", "red"): 1}), "k"),
        (Admission(strict={("project", "p"): 1}), "k"),
        (Admission(strict={("all", ""): 1}), "k"),
        (Admission(shared=SharedLimits(models={"m": Rates(requests_per_minute=1)})), "k"),
        (Admission(shadow_pico_usd=1), SHADOW),
    ],
)
def test_every_kind_of_limit_is_asked_for_and_otherwise_none(limited: Admission, key: str) -> None:
    assert limited.limits_key(key, "red", "p", "somebody")
    assert not limited.holds_nothing(key)
    assert not Admission().limits_key(key, "red", "p", "somebody")
    assert Admission().holds_nothing("k")


async def test_requests_per_minute_refill_and_say_when() -> None:
    clock = HandClock()
    limited = admission(requests_per_minute=60, clock=clock)
    for _ in range(60):
        await limited.admit("k", tokens=1)
    with pytest.raises(RateLimitExceeded, match="60 requests a minute") as caught:
        await limited.admit("k", tokens=1)
    assert caught.value.retry_after_seconds == pytest.approx(1.0)
    assert caught.value.headers["x-ratelimit-remaining-requests"] == "0"
    clock.now += 1
    await limited.admit("k", tokens=1)


async def test_what_is_left_of_the_rates_is_told() -> None:
    limited = Admission(
        limits={"k": parse_limits({"requests_per_minute": 60, "tokens_per_minute": 1000})},
        shared=SharedLimits(teams={"red": Rates(requests_per_minute=3)}),
        treasury=Treasury(LocalCounters(clock=HandClock())),
    )
    assert await limited.admit("k", team="red", tokens=100) == {
        "x-ratelimit-limit-requests": "3",
        "x-ratelimit-remaining-requests": "2",
        "x-ratelimit-reset-requests": "20s",
        "x-ratelimit-limit-tokens": "1000",
        "x-ratelimit-remaining-tokens": "900",
        "x-ratelimit-reset-tokens": "6s",
    }
    assert not await limited.admit("unlimited", tokens=100)


async def test_a_refused_request_takes_no_rate() -> None:
    clock = HandClock()
    limited = admission(requests_per_minute=10, tokens_per_minute=100, clock=clock)
    await limited.admit("k", tokens=100)
    for _ in range(50):
        with pytest.raises(RateLimitExceeded, match="tokens"):
            await limited.admit("k", tokens=10)
    clock.now += 6
    await limited.admit("k", tokens=10)


async def test_a_request_above_the_whole_rate_needs_a_full_bucket_and_is_not_refused_for_ever() -> None:
    clock = HandClock()
    limited = admission(tokens_per_minute=100, clock=clock)
    await limited.admit("k", tokens=500)
    clock.now += 60
    with pytest.raises(RateLimitExceeded):
        await limited.admit("k", tokens=1)


async def test_a_team_shares_one_rate() -> None:
    limited = Admission(shared=SharedLimits(teams={"red": Rates(requests_per_minute=2)}))
    await limited.admit("k1", team="red", tokens=1)
    await limited.admit("k2", team="red", tokens=1)
    with pytest.raises(RateLimitExceeded, match="The team 'red' may use 2 requests"):
        await limited.admit("k3", team="red", tokens=1)
    await limited.admit("k3", team="blue", tokens=1)


async def test_a_model_has_one_rate_for_everybody() -> None:
    limited = Admission(shared=SharedLimits(models={"dear": Rates(tokens_per_minute=10)}))
    await limited.reserve("a", "k1", 1, now_us=NOW_US, model="dear", tokens=10)
    with pytest.raises(ModelLimited) as caught:
        await limited.reserve("b", "k2", 1, now_us=NOW_US, model="dear", tokens=1)
    assert caught.value.models == {"dear"}
    await limited.reserve("b", "k2", 1, now_us=NOW_US, model="cheap", tokens=1)
    assert limited.is_counted("k1", "dear")
    assert not limited.is_counted("k1", "cheap")


async def test_a_tier_quota_counts_the_requests_that_its_models_answered() -> None:
    shared = SharedLimits(tiers={"premium": frozenset({"large", "larger"})})
    limited = admission(shared=shared, tier_quotas={"premium": {"requests": 2, "window": "day"}})

    async def ask(request_id: str, model: str, *, now_us: int = NOW_US) -> None:
        await limited.reserve(request_id, "k", None, now_us=now_us, model=model)

    await ask("a", "large")
    await ask("b", "larger")
    with pytest.raises(ModelLimited, match="2 requests per day answered by models of the tier 'premium'") as caught:
        await ask("c", "large")
    assert caught.value.models == {"large", "larger"}
    end = window_end("day", NOW_US)
    assert end is not None
    assert caught.value.retry_after_seconds == end.timestamp() - NOW_US / 1e6
    await ask("c", "small")
    limited.settle("a", None, model="large")
    with pytest.raises(ModelLimited):
        await ask("d", "large")
    limited.settle("b", None, model="small")
    await ask("d", "large")
    await ask("e", "large", now_us=NOW_US + DAY_US)


@pytest.mark.parametrize(("model", "is_counted"), [("large", True), ("small", False)])
async def test_what_an_earlier_life_answered_is_in_its_quota(model: str, is_counted: bool) -> None:
    shared = SharedLimits(tiers={"premium": frozenset({"large"})})
    limited = admission(shared=shared, tier_quotas={"premium": {"requests": 1, "window": "day"}})
    limited.carry(make_entry(1, intent=make_intent(1, key_id="k", accepted_at_us=NOW_US), model=model))
    with pytest.raises(ModelLimited) if is_counted else nullcontext():
        await limited.reserve("a", "k", None, now_us=NOW_US, model="large")


async def test_the_budget_counts_what_is_held() -> None:
    limited = admission(budget_usd="0.000000000100")
    await reserve(limited, "a", 60)
    with pytest.raises(BudgetExhausted, match="is held by requests under way"):
        await reserve(limited, "b", 41)
    await reserve(limited, "c", 40)
    limited.settle("a", 10)
    await reserve(limited, "d", 50)
    limited.settle("c", None)
    limited.settle("d", 50)
    with pytest.raises(BudgetExhausted):
        await reserve(limited, "e", 1)


async def test_what_was_spent_before_it_came_here_is_gone_until_its_window_ends() -> None:
    usd, later_us = 10**12, NOW_US + 40 * DAY_US
    limited = admission(budget_usd="10")
    limited.strict = {("team", "red"): 9 * usd}
    limited.openings = {("key", "k", MONTH): 6 * usd, ("team", "red", MONTH): 8 * usd, ("project", "k", MONTH): usd}
    await reserve(limited, "a", 4 * usd)
    limited.settle("a", usd)
    with pytest.raises(BudgetExhausted, match=r"this key is \$10\.0+ per month: \$7\.0+ is spent"):
        await reserve(limited, "b", 3 * usd + 1)
    with pytest.raises(BudgetExhausted, match=r"the team 'red' is \$9\.0+ per month: \$8\.0+ is spent"):
        await limited.reserve("c", "other", usd + 1, now_us=NOW_US, team="red")
    await limited.reserve("d", "other", usd, now_us=NOW_US, team="red")
    await reserve(limited, "e", 10 * usd, now_us=later_us)


async def test_more_that_is_heard_of_holds_at_once_whatever_was_leased_before() -> None:
    """Spending beyond the budget is no debt: the next window has the full amount."""
    limited = admission(budget_usd="0.0000000001")
    await reserve(limited, "r", 5)
    limited.settle("r", 5)
    limited.openings = {("key", "k", MONTH): 95}
    with pytest.raises(BudgetExhausted):
        await reserve(limited, "s", 1)
    limited.openings = {("key", "k", MONTH): 94}
    await reserve(limited, "t", 1)
    limited.openings = {("key", "k", MONTH): 10**15}
    with pytest.raises(BudgetExhausted):
        await reserve(limited, "u", 1)
    await reserve(limited, "v", 100, now_us=NOW_US + 40 * DAY_US)


async def test_money_that_is_only_held_is_waited_for() -> None:
    limited = admission(budget_usd="0.000000000100", wait_seconds=3600)
    await reserve(limited, "a", 100)
    waiting = [asyncio.create_task(reserve(limited, name, 50)) for name in "bc"]
    await asyncio.sleep(0.05)
    assert not any(task.done() for task in waiting)
    limited.settle("a", 0)
    await asyncio.gather(*waiting)
    limited.settle("b", 50)
    limited.settle("c", 50)
    with pytest.raises(BudgetExhausted):
        await asyncio.wait_for(reserve(limited, "d", 1), 300)


async def test_a_caller_that_leaves_the_queue_holds_nothing() -> None:
    limited = admission(budget_usd="0.000000000100", wait_seconds=60)
    await reserve(limited, "a", 100)
    waiting = asyncio.create_task(reserve(limited, "b", 50))
    await asyncio.sleep(0.01)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    limited.settle("a", 0)
    await reserve(limited, "c", 100)


async def test_a_request_that_was_never_accepted_leaves_no_trace() -> None:
    limited = admission(budget_usd="0.0000000001")
    await reserve(limited, "a", 100)
    limited.cancel("a")
    await reserve(limited, "b", 100)


async def test_a_stream_extends_until_nothing_is_left() -> None:
    limited = admission(budget_usd="0.0000000001")
    await reserve(limited, "a", 40)
    for amount, is_enough in ((80, True), (60, True), (101, False), (100, True)):
        await limited.fund("a", amount)
        assert limited.extend("a", amount) is is_enough
    assert not await limited.fund("a", None)
    assert not limited.extend("a", None)
    limited.settle("a", 90)
    await reserve(limited, "b", 10)


async def test_unknown_prices_are_refused_on_budgeted_keys() -> None:
    with pytest.raises(BudgetExhausted, match=r"its price, .* is not known.*`price_overrides` in breakeven.yaml"):
        await reserve(admission(budget_usd="1"), "a", None)


async def test_a_charge_belongs_to_the_window_of_its_admission() -> None:
    limited = admission(budget_usd="0.0000000001", budget_window="day")
    await reserve(limited, "old", 100)
    await reserve(limited, "new", 100, now_us=NOW_US + DAY_US)
    limited.settle("old", 100)
    limited.settle("new", 0)
    await reserve(limited, "again", 100, now_us=NOW_US + DAY_US)


async def test_a_clock_that_jumps_never_resets_a_window_twice() -> None:
    limited = admission(budget_usd="0.0000000001", budget_window="day")
    await reserve(limited, "a", 100)
    limited.settle("a", 100)
    await reserve(limited, "b", 100, now_us=NOW_US + DAY_US)
    limited.settle("b", 100)
    for at_us in (NOW_US, NOW_US + DAY_US, NOW_US):
        with pytest.raises(BudgetExhausted):
            await reserve(limited, "c", 1, now_us=at_us)


async def test_what_the_books_show_counts_and_is_not_counted_twice() -> None:
    entry = make_entry(1)
    account, booked = budget_account("k", MONTH), 40
    limited = admission(budget_usd="0.0000000001")

    async def books() -> dict[Account, int]:
        return {account: booked}

    counters = limited.treasury.counters
    await counters.read_books(books)
    await limited.reserve(entry.intent.request_id, "k", 50, now_us=NOW_US)
    with pytest.raises(BudgetExhausted):
        await reserve(limited, "b", 11)
    limited.settle(entry.intent.request_id, 45)
    await limited.treasury.report()
    limited.shipped([entry.intent.request_id])
    await counters.read_books(books)  # begun before the report that follows: it may have missed the entry
    await limited.treasury.report()
    with pytest.raises(BudgetExhausted):
        await reserve(limited, "c", 16)
    booked = 85
    await counters.read_books(books)
    await limited.treasury.report()
    with pytest.raises(BudgetExhausted):
        await reserve(limited, "c", 16)
    await reserve(limited, "d", 15)


async def test_what_the_books_show_and_is_still_held_is_spent_once_and_decides_nothing_while_they_cannot_be_read() -> (
    None
):
    limited, spent = admission(budget_usd="0.001"), 800_000_000

    async def books() -> dict[Account, int]:
        return {budget_account("k", MONTH): spent}

    await reserve(limited, "a", spent)
    limited.settle("a", spent)
    limited.sending(["a"])
    limited.treasury.idle_reports = 0
    await limited.treasury.report()  # what is not spent is given back
    limited.shipped(["a"])
    await limited.treasury.counters.read_books(books)
    with pytest.raises(BudgetExhausted, match=r"\$0\.000800 is spent, \$0\.000000 is held"):
        await reserve(limited, "b", 300_000_000)
    limited.treasury.is_blind = True
    with pytest.raises(Overloaded, match=r"the budget of this key has enough left .* once the database shows"):
        await reserve(limited, "b", 150_000_000)  # by the same figures there is enough
    await limited.treasury.report()
    await limited.treasury.counters.read_books(books)
    await limited.treasury.report()
    await reserve(limited, "b", 150_000_000)


async def test_what_was_not_read_from_the_books_yet_is_not_spent_and_nobody_is_told_that_it_is_used_up() -> None:
    shared = SharedLimits(tiers={"premium": frozenset({"large"})})
    limited = admission(shared=shared, budget_usd="1", tier_quotas={"premium": {"requests": 2, "window": "day"}})

    async def no_such_key() -> dict[Account, int]:
        return {}

    await limited.treasury.counters.read_books(no_such_key)
    for model in ("", "large"):
        limited.treasury.wants_reading.clear()
        with pytest.raises(Overloaded, match="is still being read from the database, as for every new") as caught:
            await limited.reserve("a", "k", 1, now_us=NOW_US, model=model)
        assert caught.value.retry_after_seconds == 2.0
        assert limited.treasury.wants_reading.is_set()


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50), st.booleans()), max_size=60), st.integers(0, 400))
async def test_settled_and_held_never_pass_the_budget(requests: list[tuple[int, int, bool]], budget: int) -> None:
    limited = admission(budget_usd=f"{budget}e-12")
    spent, held = 0, dict[str, int]()
    for number, (amount, cost, ends_one) in enumerate(requests):
        fits = spent + sum(held.values()) + amount <= budget
        try:
            await reserve(limited, str(number), amount)
            held[str(number)] = amount
            assert fits, "admitted although it did not fit"
        except BudgetExhausted:
            assert not fits, "a false refusal"
        if ends_one and held:
            name, kept = held.popitem()
            limited.settle(name, min(cost, kept))
            spent += min(cost, kept)
        assert spent + sum(held.values()) <= budget
