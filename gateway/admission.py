"""What a key may still do: rates, strict budgets and tier quotas. Policy only: counting is its Counters' business.

Money is reserved before it is spent and what was not needed is given back, so that requests running side by side, here
and in other workers, cannot together spend more than the budget: a whole answer reserves its upper bound; a stream
reserves its input and one increment of output, extends as it runs, and ends with `finish_reason: length` when nothing
is left. Nobody is refused because of money that is only held: a request waits a while for it to be given back.

A charge belongs to the window of its admission.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gateway.counters import CountersDown, Grant, Rate, budget_account, quota_account
from gateway.errors import BudgetExhausted, ModelLimited, Overloaded, RateLimitExceeded
from gateway.ledger.entry import Entry
from gateway.limits import (
    NO_RATES,
    UNLIMITED,
    Limits,
    Rates,
    SharedLimits,
    TierQuota,
    WindowName,
    parse_limits,
    window_end,
    window_id,
    window_start,
)
from gateway.money import format_usd
from gateway.purse import Purse
from gateway.treasury import Treasury

__all__ = ["Admission", "Limits", "SharedLimits", "WindowName", "parse_limits", "window_start"]

SMALLEST_SHOWN_PLACES = 6
WAIT_SECONDS = 10.0
"""For money that requests under way hold and may give back."""
EXTEND_SECONDS = 1.0
RETRY_SECONDS = 2.0


@dataclass(slots=True)
class _Hold:
    """Of one request. `quota` is the purse of its tier, `model_of` the models that are charged to it."""

    purse: Purse | None
    amount: int
    quota: Purse | None = None
    quota_models: frozenset[str] = frozenset()
    cost: int = 0
    counts: bool = False
    is_sent: bool = False


@dataclass(slots=True)
class Admission:
    """`limits` (by key) and `shared` are replaced whole when they change. `now_us` arguments name the window."""

    limits: Mapping[str, Limits] = field(default_factory=dict[str, Limits])
    shared: SharedLimits = field(default_factory=SharedLimits)
    treasury: Treasury = field(default_factory=Treasury)
    wait_seconds: float = WAIT_SECONDS
    _holds: dict[str, _Hold] = field(default_factory=dict[str, _Hold])
    _settled: dict[str, _Hold] = field(default_factory=dict[str, _Hold])

    def has_budget(self, key_id: str) -> bool:
        """Whether money is counted for this key at all."""
        return self.limits.get(key_id, UNLIMITED).budget_usd is not None

    async def admit(self, key_id: str, *, team: str | None = None, tokens: int) -> None:
        """Take a request and its input tokens from the key's and the team's rates. Raises RateLimitExceeded."""
        limits = self.limits.get(key_id, UNLIMITED)
        key_rates = Rates(limits.requests_per_minute, limits.tokens_per_minute)
        team_rates = self.shared.teams.get(team, NO_RATES) if team is not None else NO_RATES
        if key_rates == NO_RATES and team_rates == NO_RATES:
            return
        rates = [*_rates(f"key:{key_id}", key_rates, tokens), *_rates(f"team:{team}", team_rates, tokens)]
        if shortage := await self.treasury.counters.take(rates):
            raise RateLimitExceeded(
                _slower(shortage.rate, shortage.wait_seconds), retry_after_seconds=shortage.wait_seconds
            )

    def is_counted(self, key_id: str, model: str) -> bool:
        """Whether the model has a rate or a quota, so that it may serve this key only after `reserve` named it."""
        return model in self.shared.models or self._tier(key_id, model) is not None

    async def reserve(
        self,
        request_id: str,
        key_id: str,
        amount_pico_usd: int | None,
        *,
        now_us: int,
        model: str = "",
        tokens: int = 0,
    ) -> None:
        """Hold the money of a request, and its place in the model's rate and tier.

        Raises ModelLimited when only the model is at its limit, BudgetExhausted when there is no money for it (an
        unknown price is refused on a budgeted key) and Overloaded when the shared store is down and the lease spent.
        """
        limits = self.limits.get(key_id, UNLIMITED)
        hold = _Hold(None, 0)
        try:
            await self._take_model(hold, key_id, limits, model, tokens, now_us)
            if limits.budget_usd is not None:
                await self._take_money(hold, key_id, limits, amount_pico_usd, now_us)
        except BaseException:
            self._release(hold)
            raise
        if hold.purse is not None or hold.quota is not None:
            self._holds[request_id] = hold

    def extend(self, request_id: str, to_pico_usd: int | None) -> bool:
        """Hold so much in all from now on, out of what this worker has leased; False changes nothing."""
        hold = self._holds.get(request_id)
        if hold is None or hold.purse is None:
            return True
        if to_pico_usd is None:
            return False
        more = max(0, to_pico_usd - hold.amount)
        if not hold.purse.reserve(more):
            return False
        hold.amount += more
        return True

    async def fund(self, request_id: str, to_pico_usd: int | None, *, wait_seconds: float = EXTEND_SECONDS) -> bool:
        """Lease what `extend` to this amount needs, waiting a moment for what others hold; False: it is not there."""
        hold = self._holds.get(request_id)
        if hold is None or hold.purse is None:
            return True
        if to_pico_usd is None:
            return False
        more = max(0, to_pico_usd - hold.amount)
        try:
            return await self.treasury.obtain(hold.purse, more, min(wait_seconds, self.wait_seconds)) is None
        except CountersDown:
            return False

    def settle(self, request_id: str, cost_pico_usd: int | None, *, model: str = "") -> None:
        """Give back what was not needed and charge what it came to; an unknown cost is charged as held."""
        hold = self._holds.pop(request_id, None)
        if hold is None:
            return
        if hold.purse is not None:
            hold.cost = hold.amount if cost_pico_usd is None else cost_pico_usd
            hold.purse.settle(hold.amount, hold.cost)
        if hold.quota is not None:
            hold.counts = model in hold.quota_models
            hold.quota.settle(1, int(hold.counts))
        self._settled[request_id] = hold

    def cancel(self, request_id: str) -> None:
        """The request was never accepted: nothing will come into the books."""
        if hold := self._holds.pop(request_id, None):
            self._release(hold)

    def sending(self, entries: Iterable[Entry]) -> None:
        """These are about to be in the database, if they are not yet from an attempt before."""
        for entry in entries:
            hold = self._settled.get(entry.intent.request_id)
            if hold is None or hold.is_sent:
                continue
            hold.is_sent = True
            if hold.purse is not None:
                hold.purse.sending(hold.cost)
            if hold.quota is not None:
                hold.quota.sending(int(hold.counts))

    def shipped(self, entries: Iterable[Entry]) -> None:
        """These are in the database now; `sending` named them before."""
        for entry in entries:
            hold = self._settled.pop(entry.intent.request_id, None)
            if hold is None:
                continue
            if hold.purse is not None:
                hold.purse.shipped(hold.cost)
            if hold.quota is not None:
                hold.quota.shipped(int(hold.counts))

    async def _take_model(self, hold: _Hold, key_id: str, limits: Limits, model: str, tokens: int, now_us: int) -> None:
        rates = self.shared.models.get(model)
        if rates and (shortage := await self.treasury.counters.take(list(_rates(f"model:{model}", rates, tokens)))):
            raise ModelLimited(
                _slower(shortage.rate, shortage.wait_seconds),
                models=frozenset({model}),
                retry_after_seconds=shortage.wait_seconds,
            )
        tier = self._tier(key_id, model)
        if tier is None:
            return
        quota = limits.tier_quotas[tier]
        models = self.shared.tiers[tier]
        purse = self.treasury.purse(quota_account(key_id, tier, window_id(quota.window, now_us)), quota.requests)
        if await self._store_says_no(purse, 1, min(EXTEND_SECONDS, self.wait_seconds)):
            raise ModelLimited(
                _quota_text(tier, quota), models=models, retry_after_seconds=_until_end(quota.window, now_us)
            )
        hold.quota, hold.quota_models = purse, models

    async def _take_money(self, hold: _Hold, key_id: str, limits: Limits, amount: int | None, now_us: int) -> None:
        budget = limits.budget_pico_usd
        assert budget is not None
        if amount is None:
            raise BudgetExhausted("This key has a budget and the model's price is not known, so it cannot be used.")
        purse = self.treasury.purse(budget_account(key_id, window_id(limits.budget_window, now_us)), budget)
        if refusal := await self._store_says_no(purse, amount, self.wait_seconds):
            spent = refusal.spent + refusal.held_spent + purse.holding.spent
            held = refusal.held - refusal.held_spent + purse.reserved
            raise BudgetExhausted(
                f"The budget of this key is ${_shown(budget)} per {limits.budget_window}: ${_shown(spent)} is "
                f"spent, ${_shown(held)} is held by requests under way, and this request needs "
                f"${_shown(amount)}. Lower max_tokens, wait for the next window or raise the budget."
            )
        hold.purse, hold.amount = purse, amount

    async def _store_says_no(self, purse: Purse, amount: int, wait_seconds: float) -> Grant | None:
        """Reserve from the purse, filling it first where needed; the store's last word when there is not enough."""
        while not purse.reserve(amount):
            try:
                refusal = await self.treasury.obtain(purse, amount, wait_seconds)
            except CountersDown as error:
                raise Overloaded(
                    f"The store that budgets are counted in cannot be reached ({error}), and this worker has spent "
                    "what it held of this one; it goes on by itself once the store is back.",
                    retry_after_seconds=RETRY_SECONDS,
                ) from error
            if refusal is not None:
                return refusal
        return None

    def _tier(self, key_id: str, model: str) -> str | None:
        """The tier of the model that this key has a quota for."""
        quotas = self.limits.get(key_id, UNLIMITED).tier_quotas
        return next((tier for tier in quotas if model in self.shared.tiers.get(tier, ())), None)

    def _release(self, hold: _Hold) -> None:
        if hold.purse is not None:
            hold.purse.settle(hold.amount, 0)
        if hold.quota is not None:
            hold.quota.settle(1, 0)


def _rates(whose: str, rates: Rates, tokens: int) -> Iterable[Rate]:
    if rates.requests_per_minute is not None:
        yield Rate(f"{whose}:requests", 1, rates.requests_per_minute)
    if rates.tokens_per_minute is not None:
        yield Rate(f"{whose}:tokens", tokens, rates.tokens_per_minute)


def _slower(rate: Rate, wait_seconds: float) -> str:
    kind, _, rest = rate.bucket.partition(":")
    name, _, what = rest.rpartition(":")
    who = "This key" if kind == "key" else f"The {kind} {name!r}"
    return f"{who} may use {rate.per_minute:,} {what} a minute; try again in {wait_seconds:.1f} s."


def _quota_text(tier: str, quota: TierQuota) -> str:
    return (
        f"This key may have {quota.requests:,} requests per {quota.window} answered by models of the tier {tier!r}, "
        "and they are used up. Name another model or use auto."
    )


def _until_end(window: WindowName, now_us: int) -> float:
    end = window_end(window, now_us)
    return 86_400.0 * 30 if end is None else max(1.0, end.timestamp() - now_us / 1e6)


def _shown(pico_usd: int) -> str:
    return format_usd(pico_usd, places=SMALLEST_SHOWN_PLACES)
