"""While the shared store is down: who is refused with which message, and who is served."""

import pytest

from gateway.errors import Overloaded
from gateway.limits.admission import Admission
from gateway.limits.counters import Account, CountersDown, Grant, Holding
from gateway.limits.local_counters import LocalCounters
from gateway.limits.treasury import Treasury
from gateway.limits.values import SharedLimits, parse_limits
from gateway.openai_errors import body_of, headers_of, status_of

NOW_US = 1_795_000_000_000_000
WHERE = "Error 111 connecting to redis.internal:6379. Connection refused."


class Away(LocalCounters):
    async def lease(self, account: Account, *, limit: int, holding: Holding, need: int, want: int) -> Grant:
        raise CountersDown(WHERE)


@pytest.mark.parametrize("limits", [{"budget_usd": "1"}, {"tier_quotas": {"dear": {"requests": 5}}}])
async def test_a_counted_key_hears_what_to_do_and_not_where_the_store_is(limits: dict[str, object]) -> None:
    counted = Admission(
        limits={"k": parse_limits(limits)},
        shared=SharedLimits(tiers={"dear": frozenset({"m"})}),
        treasury=Treasury(Away()),
        wait_seconds=0.0,
    )
    with pytest.raises(Overloaded) as refused:
        await counted.reserve("r", "k", 5, now_us=NOW_US, model="m")
    told = body_of(refused.value).decode()
    assert status_of(refused.value) == 503
    assert int(headers_of(refused.value)["retry-after"]) >= 1
    assert "Try again once the store is back" in told
    assert "6379" not in told
    assert "redis" not in told
    assert str(refused.value.__cause__) == WHERE
    await counted.reserve("s", "another", 10**12, now_us=NOW_US, model="m")
