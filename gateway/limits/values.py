"""What keys, teams and models may use, as configured and stored. Values only: nothing is counted here."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Literal, cast

import msgspec

from gateway.instants import HOUR_US
from gateway.money import MOST_USD, parse_usd

WindowName = Literal["day", "month", "total"]
EndUserWindow = Literal["day", "month"]
MOST_COUNT = 10**12
"""The largest number of requests or tokens that may be given: rates are divided, and floats end."""
BudgetScope = Literal["all", "team", "project"]
SHADOW_WINDOW: WindowName = "day"


class TierQuota(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many requests per window (UTC) a key may have answered by the models of a tier."""

    requests: int
    window: WindowName = "day"


class Rates(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of a team or a model across all keys; None is unlimited. Tokens are input tokens."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    max_parallel_requests: int | None = None


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The limits of one key; null is unlimited. Budgets are decimal text, windows are UTC. `end_user_budget_usd` is for
    each end user that its requests name."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    max_parallel_requests: int | None = None
    budget_usd: str | None = None
    budget_window: WindowName = "month"
    end_user_budget_usd: str | None = None
    end_user_budget_window: EndUserWindow = "month"
    tier_quotas: dict[str, TierQuota] = {}

    @property
    def budget_pico_usd(self) -> int | None:
        return None if self.budget_usd is None else parse_usd(self.budget_usd)

    @property
    def end_user_budget_pico_usd(self) -> int | None:
        return None if self.end_user_budget_usd is None else parse_usd(self.end_user_budget_usd)


BUDGETS = ("budget_usd", "end_user_budget_usd")
UNLIMITED = Limits()
NO_RATES = Rates()


@dataclass(frozen=True, slots=True)
class SharedLimits:
    """Limits that do not belong to one key: rates of teams and of models, and the models of each tier."""

    teams: Mapping[str, Rates] = field(default_factory=dict[str, Rates])
    models: Mapping[str, Rates] = field(default_factory=dict[str, Rates])
    tiers: Mapping[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])


@dataclass(frozen=True, slots=True)
class StrictBudget:
    """A budget that must not be overspent: whose, how much, in which window. `name` is empty for everything and for
    shadow calls; an end user's follows the key's id and a colon."""

    scope: Literal["key", "team", "project", "all", "shadow", "end_user"]
    name: str
    pico_usd: int
    window: WindowName = "month"


def parse_limits(stored: Mapping[str, Any]) -> Limits:
    """Limits as stored. Raises msgspec.ValidationError, and ValueError for an invalid amount."""
    limits = msgspec.convert(dict(stored), Limits)
    for name in BUDGETS:
        text = getattr(limits, name)
        try:
            budget = 0 if text is None else parse_usd(text)
        except (ArithmeticError, ValueError) as error:
            raise ValueError(f"{name} is not an amount of dollars such as 25 or 25.50") from error
        if budget < 0:
            raise ValueError(f"{name} cannot be negative")
    if any(quota.requests < 0 for quota in limits.tier_quotas.values()):
        raise ValueError("a tier's quota cannot be negative")
    return limits


def new_limits(given: Mapping[str, Any]) -> dict[str, Any]:
    """Limits that somebody sets, as stored: without nulls. Raises ValueError, also for amounts and numbers that earlier
    versions took and `parse_limits` still reads."""
    limits = {name: value for name, value in given.items() if value is not None}
    parsed = parse_limits(limits)
    for name in BUDGETS:
        if name in limits and parse_usd(limits[name]) > parse_usd(MOST_USD):
            raise ValueError(f"{name} must be at most {MOST_USD:,} dollars")
    numbers = {name: value for name, value in limits.items() if isinstance(value, int)}
    if small := [name for name, value in numbers.items() if value < 1]:
        raise ValueError(f"{small[0]} must be at least 1; leave it out for no limit, or revoke the key to stop it")
    numbers |= {"tier_quotas": max((quota.requests for quota in parsed.tier_quotas.values()), default=0)}
    if large := [name for name, value in numbers.items() if value > MOST_COUNT]:
        raise ValueError(f"{large[0]} must be at most {MOST_COUNT:,}")
    return limits


def window_start(window: WindowName, at_us: int) -> datetime:
    """Start of the window that contains `at_us`."""
    at = datetime.fromtimestamp(at_us / 1e6, UTC)
    if window == "total":
        return datetime(1970, 1, 1, tzinfo=UTC)
    return at.replace(day=at.day if window == "day" else 1, hour=0, minute=0, second=0, microsecond=0)


def window_end(window: WindowName, at_us: int) -> datetime | None:
    """End of the window that contains `at_us`; None for a window without end."""
    start = window_start(window, at_us)
    if window == "total":
        return None
    if window == "day":
        return datetime.fromtimestamp(start.timestamp() + 86_400, UTC)
    return start.replace(year=start.year + start.month // 12, month=start.month % 12 + 1)


def seconds_left(window: WindowName, now_us: int) -> float:
    """Seconds until the window ends, for Retry-After; a month if it never ends."""
    end = window_end(window, now_us)
    return 86_400.0 * 30 if end is None else max(1.0, end.timestamp() - now_us / 1e6)


def window_id(window: WindowName, at_us: int) -> str:
    """A window's name, the same in every process: `day:2026-11-21`, `month:2026-11-01`, `total:1970-01-01`."""
    return _id_in_hour(window, at_us // HOUR_US)


def window_of_id(name: str) -> tuple[WindowName, int]:
    """The kind of window a `window_id` names, and its start in microseconds since the epoch."""
    window, _, day = name.partition(":")
    began = datetime.fromisoformat(day).replace(tzinfo=UTC)
    return cast("WindowName", window), round(began.timestamp()) * 1_000_000


@lru_cache(maxsize=64)
def _id_in_hour(window: WindowName, hour: int) -> str:
    """Cached: every budgeted request asks for it, and it stays the same for an hour."""
    return f"{window}:{window_start(window, hour * HOUR_US):%Y-%m-%d}"
