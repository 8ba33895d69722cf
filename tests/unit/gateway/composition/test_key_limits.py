import pytest

from gateway.composition.key_limits import limits_of_keys, strict_budgets
from gateway.limits.values import Limits, SharedLimits, TierQuota
from gateway.stores import Budget

SHARED = SharedLimits(tiers={"premium": frozenset({"large"})})


def test_keys_without_limits_are_left_out() -> None:
    stored = {"a": {}, "b": {"requests_per_minute": 3}}
    assert limits_of_keys(stored, SHARED) == {"b": Limits(requests_per_minute=3)}


def test_a_quota_names_a_tier_that_there_is() -> None:
    stored = {"a": {"tier_quotas": {"premium": {"requests": 3}}}}
    assert limits_of_keys(stored, SHARED)["a"].tier_quotas == {"premium": TierQuota(3)}


@pytest.mark.parametrize(
    "stored", [{"budget_usd": "lots"}, {"tier_quotas": {"gone": {"requests": 3}}}, {"requests": 4}]
)
def test_limits_that_cannot_be_read_close_the_key(stored: dict[str, object]) -> None:
    assert limits_of_keys({"a": stored}, SHARED) == {"a": Limits(budget_usd="0")}


def test_only_budgets_that_stop_are_strict() -> None:
    warns, stops = Budget("team", "red", 5, "ada", 1), Budget("all", "", 7, "ada", 1, stops=True)
    assert strict_budgets([warns, stops]) == {("all", ""): 7}
