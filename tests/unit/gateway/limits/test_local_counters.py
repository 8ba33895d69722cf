import pytest

from gateway.limits.counters import Rate
from gateway.limits.local_counters import LocalCounters
from tests.hand_clock import HandClock


async def test_a_process_that_shares_its_rates_gets_its_part() -> None:
    clock = HandClock()
    counters = LocalCounters(clock=clock, share=lambda: 4)
    rate = Rate("key:k:requests", 1, 60)
    taken = 0
    while (shortage := await counters.take([rate])) is None:
        taken += 1
    assert taken == 15
    assert shortage.rate == rate
    assert shortage.wait_seconds == pytest.approx(4.0)
