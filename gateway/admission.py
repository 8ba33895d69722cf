"""What a key may still do: requests and tokens per minute, and a strict budget. Arithmetic only, no clock.

Money is reserved before it is spent and what was not needed is given back, so that requests running side by side
cannot together spend more than the budget: a whole answer reserves its upper bound; a stream reserves its input and
one increment of output, extends as it runs, and ends with `finish_reason: length` when nothing is left.

A charge belongs to the window of its admission. One process counts for itself alone; the books seed it at start.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from gateway.errors import BudgetExhausted, RateLimitExceeded
from gateway.money import format_usd, parse_usd

WindowName = Literal["day", "month", "total"]
MINUTE_US = 60_000_000
SMALLEST_SHOWN_PLACES = 6


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of one key, as stored with it; None is unlimited. `budget_usd` is decimal text, windows are UTC."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    budget_usd: str | None = None
    budget_window: WindowName = "month"

    @property
    def budget_pico_usd(self) -> int | None:
        return None if self.budget_usd is None else parse_usd(self.budget_usd)


UNLIMITED = Limits()


def parse_limits(stored: Mapping[str, Any]) -> Limits:
    """Limits as stored. Raises msgspec.ValidationError, and ValueError for a budget that is not an amount."""
    limits = msgspec.convert(dict(stored), Limits)
    if limits.budget_pico_usd is not None and limits.budget_pico_usd < 0:
        raise ValueError("a budget cannot be negative")
    return limits


def window_start(window: WindowName, at_us: int) -> datetime:
    """When the window that holds `at_us` began."""
    at = datetime.fromtimestamp(at_us / 1e6, UTC)
    if window == "total":
        return datetime(1970, 1, 1, tzinfo=UTC)
    return at.replace(day=at.day if window == "day" else 1, hour=0, minute=0, second=0, microsecond=0)


@dataclass(slots=True)
class _Bucket:
    """Refills to its capacity in a minute."""

    level: float
    at_us: int

    def wait_seconds(self, amount: float, capacity: float, now_us: int) -> float:
        """Until `amount` is there; an amount above the capacity needs a full bucket. Takes nothing."""
        elapsed_us = max(0, now_us - self.at_us)
        self.level = min(capacity, self.level + capacity * elapsed_us / MINUTE_US)
        self.at_us = max(self.at_us, now_us)
        return max(0.0, (min(amount, capacity) - self.level) / capacity * 60)


@dataclass(slots=True)
class _Account:
    """One key in one window; `spent` and `reserved` are pico-USD."""

    window: datetime
    spent: int = 0
    reserved: int = 0


@dataclass(slots=True)
class _Hold:
    key_id: str
    account: _Account
    amount: int


@dataclass(slots=True)
class Admission:
    """`limits` is replaced whole when keys change; `spent` are the books at start, by key and window."""

    limits: Mapping[str, Limits] = field(default_factory=dict[str, Limits])
    spent: Mapping[tuple[str, datetime], int] = field(default_factory=dict[tuple[str, datetime], int])
    _buckets: dict[tuple[str, str], _Bucket] = field(default_factory=dict[tuple[str, str], _Bucket])
    _accounts: dict[str, _Account] = field(default_factory=dict[str, _Account])
    _holds: dict[str, _Hold] = field(default_factory=dict[str, _Hold])

    def has_budget(self, key_id: str) -> bool:
        """Whether money is counted for this key at all."""
        return self.limits.get(key_id, UNLIMITED).budget_usd is not None

    def admit(self, key_id: str, *, tokens: int, now_us: int) -> None:
        """Take a request and its input tokens from the key's rates. Raises RateLimitExceeded, taking nothing."""
        limits = self.limits.get(key_id, UNLIMITED)
        taken: list[tuple[_Bucket, float]] = []
        for what, amount, capacity in (
            ("requests", 1, limits.requests_per_minute),
            ("tokens", tokens, limits.tokens_per_minute),
        ):
            if capacity is None:
                continue
            bucket = self._buckets.setdefault((key_id, what), _Bucket(float(capacity), now_us))
            wait = bucket.wait_seconds(amount, float(capacity), now_us)
            if wait > 0:
                raise RateLimitExceeded(
                    f"This key may use {capacity:,} {what} a minute; try again in {wait:.1f} s.",
                    retry_after_seconds=wait,
                )
            taken.append((bucket, float(amount)))
        for bucket, amount in taken:
            bucket.level -= amount

    def reserve(self, request_id: str, key_id: str, amount_pico_usd: int | None, *, now_us: int) -> None:
        """Hold money for a request. Raises BudgetExhausted; an unknown price is refused on a budgeted key."""
        limits = self.limits.get(key_id, UNLIMITED)
        budget = limits.budget_pico_usd
        if budget is None:
            return
        if amount_pico_usd is None:
            raise BudgetExhausted("This key has a budget and the model's price is not known, so it cannot be used.")
        account = self._account(key_id, window_start(limits.budget_window, now_us))
        if amount_pico_usd > budget - account.spent - account.reserved:
            raise BudgetExhausted(
                f"The budget of this key is ${_shown(budget)} per {limits.budget_window}: ${_shown(account.spent)} is "
                f"spent, ${_shown(account.reserved)} is held by requests under way, and this request needs "
                f"${_shown(amount_pico_usd)}. Lower max_tokens, wait for the next window or raise the budget."
            )
        account.reserved += amount_pico_usd
        self._holds[request_id] = _Hold(key_id, account, amount_pico_usd)

    def extend(self, request_id: str, to_pico_usd: int | None) -> bool:
        """Hold so much in all from now on; False when the budget does not allow it, and then nothing changes."""
        hold = self._holds.get(request_id)
        if hold is None:
            return True
        budget = self.limits.get(hold.key_id, UNLIMITED).budget_pico_usd
        if to_pico_usd is None:
            return False
        more = to_pico_usd - hold.amount
        if budget is not None and more > budget - hold.account.spent - hold.account.reserved:
            return False
        hold.account.reserved += max(0, more)
        hold.amount += max(0, more)
        return True

    def settle(self, request_id: str, cost_pico_usd: int | None) -> None:
        """Give the hold back and charge what it came to; an unknown cost is charged as held."""
        hold = self._holds.pop(request_id, None)
        if hold is None:
            return
        hold.account.reserved -= hold.amount
        hold.account.spent += hold.amount if cost_pico_usd is None else cost_pico_usd

    def _account(self, key_id: str, window: datetime) -> _Account:
        account = self._accounts.get(key_id)
        if account is None or account.window != window:
            account = _Account(window, self.spent.get((key_id, window), 0))
            self._accounts[key_id] = account
        return account


def _shown(pico_usd: int) -> str:
    return format_usd(pico_usd, places=SMALLEST_SHOWN_PLACES)
