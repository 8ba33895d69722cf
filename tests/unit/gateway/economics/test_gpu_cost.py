from hypothesis import given
from hypothesis import strategies as st

from gateway.economics.allocation import allocate_bill
from gateway.economics.gpu_cost import break_even_utilisation


def test_a_free_competitor_is_never_beaten() -> None:
    assert break_even_utilisation(2.0, 0.0) is None


def test_above_one_means_never() -> None:
    share = break_even_utilisation(10.0, 3.264)
    assert share is not None
    assert share > 1


def test_a_shared_gpu_is_split_by_gpu_seconds_with_idle_apart() -> None:
    bill = allocate_bill(2 * 10**12, {"a": 900.0, "b": 450.0}, 3600.0)
    assert bill.shares_pico_usd == {"a": 500_000_000_000, "b": 250_000_000_000}
    assert bill.idle_pico_usd == 1_250_000_000_000


def test_nobody_used_it() -> None:
    assert allocate_bill(10**12, {}, 3600.0).idle_pico_usd == 10**12
    assert allocate_bill(10**12, {"a": 0.0}, 0.0).idle_pico_usd == 10**12


def test_more_used_than_paid_for_leaves_nothing_idle() -> None:
    bill = allocate_bill(100, {"a": 2.0, "b": 1.0}, 2.5)
    assert bill.idle_pico_usd == 0
    assert bill.shares_pico_usd == {"a": 67, "b": 33}


@given(
    bill=st.integers(0, 10**16),
    used=st.dictionaries(st.text(max_size=3), st.floats(0, 1e6), max_size=6),
    paid=st.floats(0, 1e7),
)
def test_shares_and_idle_are_the_bill(bill: int, used: dict[str, float], paid: float) -> None:
    split = allocate_bill(bill, used, paid)
    assert sum(split.shares_pico_usd.values()) + split.idle_pico_usd == bill
    assert min([split.idle_pico_usd, *split.shares_pico_usd.values()]) >= 0
