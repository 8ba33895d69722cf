"""A month with every kind of charge that a FOCUS export can contain."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from gateway.reports.focus import Capacity, Period, focus_table
from gateway.reports.tables import ReportTable
from gateway.sums import Dimension, Sums

PERIOD = Period(datetime(2026, 1, 30, 12, tzinfo=UTC), datetime(2026, 2, 2, tzinfo=UTC))
NAMES = {"key-1": "search nightly"}
COSTS = ("BilledCost", "ContractedCost", "EffectiveCost", "ListCost")


def make_sums(**given: Any) -> Sums:
    group: dict[Dimension, str | None] = {
        "day": "2026-01-31",
        "team": "search",
        "project": "ranking",
        "key": "key-1",
        "tags": '["batch","night"]',
        "operation": "chat.completions",
        "model": "mid-hosted",
        "backend": "openai",
        "provider": "openai",
        "upstream_model": "gpt-5.4-mini",
        "is_simulated": "false",
    }
    fields: dict[str, Any] = {
        "requests": 3,
        "input_tokens": 1000,
        "cached_input_tokens": 200,
        "cache_write_5m_tokens": 100,
        "output_tokens": 77,
        "input_pico_usd": 700 * 150_000,
        "cached_input_pico_usd": 200 * 15_000,
        "cache_write_pico_usd": 100 * 187_500,
        "output_pico_usd": 77 * 600_000,
        "other_pico_usd": 3_000_000,
    }
    group |= given.pop("group", {})
    fields |= given
    costs = [value for name, value in fields.items() if name.endswith("_pico_usd") and name[:4] not in ("list", "adju")]
    fields.setdefault("list_pico_usd", sum(costs))
    return Sums(group, **fields)


def make_engine(**given: Any) -> Sums:
    """Two hours of a GPU at $2, spent by one team."""
    group = {"model": "own", "backend": "local", "provider": "local", "upstream_model": "llama"}
    nothing = dict.fromkeys(
        ("input_pico_usd", "cached_input_pico_usd", "cache_write_pico_usd", "output_pico_usd", "other_pico_usd"), 0
    )
    return make_sums(
        group={**group, **given.pop("group", {})},
        **{**nothing, "gpu_us": 7_200_000_000, "compute_pico_usd": 4 * 10**12, **given},
    )


def make_answer_from_cache() -> Sums:
    tokens = ("input_tokens", "cached_input_tokens", "cache_write_5m_tokens", "output_tokens")
    given = {**no_cost(), **dict.fromkeys(tokens, 0), "list_pico_usd": 999}
    return make_sums(group={"backend": "response_cache", "provider": "response_cache"}, **given)


def make_capacity(**given: Any) -> Capacity:
    fields: dict[str, Any] = {
        "day": "2026-01-31",
        "backend": "local",
        "provider": "local",
        "paid_us": 24 * 3_600_000_000,
        "used_us": 7_200_000_000,
        "hours": Decimal(24),
        "rent_pico_usd": 48 * 10**12,
        "used_pico_usd": 4 * 10**12,
        "idle_pico_usd": 44 * 10**12,
    }
    return Capacity(**{**fields, **given})


def a_month() -> ReportTable:
    """Every kind of charge."""
    groups = [
        make_sums(),
        make_answer_from_cache(),
        make_sums(group={"team": None, "project": None, "tags": "[]", "day": "2026-01-30"}, list_pico_usd=10**9 + 7),
        make_sums(group={"provider": "anthropic"}, unpriced_requests=1, estimated_requests=2),
        make_sums(group={"provider": "nobody"}, unpriced_requests=3, **no_cost()),
        make_sums(group={"provider": "repriced"}, adjusted_requests=2, adjustment_pico_usd=-123_456_789),
        make_sums(group={"provider": "simulated", "is_simulated": "true"}),
        make_sums(group={"day": "2026-02-01"}),
        make_engine(),
        make_engine(group={"backend": "elsewhere", "provider": "vllm"}),
    ]
    return focus_table(groups, [make_capacity(), make_capacity(day="2026-02-01", used_us=0)], PERIOD, NAMES)


def no_cost() -> dict[str, int]:
    names = ("input", "cached_input", "cache_write", "output", "other", "list")
    return {f"{name}_pico_usd": 0 for name in names}
