"""What a key may still do: rates, concurrent requests, strict budgets and tier quotas. Policy only: Counters count.

Money is reserved before it is spent, and the unused part is returned, so that concurrent requests, here and in other
workers, cannot overspend a budget together. A whole answer reserves its upper bound. A stream reserves its input and
one increment of output, extends the reservation as it runs, and ends with `finish_reason: length` when nothing is
left. Money that is merely held refuses nobody at once: a request waits a while for it to be returned.

A charge belongs to the window of its admission.
"""

import secrets
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from gateway.errors import BudgetExhausted, ModelLimited, Overloaded, RateLimitExceeded
from gateway.ledger.entry import OFF_PATH, Entry
from gateway.limits.counters import CountersDown, Grant, Places, Rate, budget_account, quota_account
from gateway.limits.hold import Hold
from gateway.limits.purse import Purse
from gateway.limits.rate_headers import NO_HEADERS, rate_headers, shortage_headers
from gateway.limits.stay import Stay
from gateway.limits.texts import budget_spent, budget_undecided, fewer_at_once, price_unknown, quota_used_up, slower
from gateway.limits.treasury import Treasury
from gateway.limits.values import (
    NO_RATES,
    SHADOW_WINDOW,
    UNLIMITED,
    BudgetScope,
    Limits,
    Rates,
    SharedLimits,
    StrictBudget,
    seconds_left,
    window_id,
)

WAIT_SECONDS = 10.0
"""How long to wait for money held by requests in progress."""
EXTEND_SECONDS = 1.0
RETRY_SECONDS = 2.0
PLACE_RETRY_SECONDS = 1.0
"""A guess: nobody knows when a request in progress will end."""


@dataclass(slots=True)
class Admission:
    """`limits` (by key), `strict` and `shared` are replaced whole when they change. `now_us` arguments select the
    window.

    `strict`: monthly budgets in pico-USD that stop, by scope and name. `openings`: what a budget had already spent
    before it was imported, by scope, name and window; it reduces what is left. `shadow_pico_usd`: what shadow calls and
    their judge may cost in a UTC day.
    """

    limits: Mapping[str, Limits] = field(default_factory=dict[str, Limits])
    strict: Mapping[tuple[BudgetScope, str], int] = field(default_factory=dict[tuple[BudgetScope, str], int])
    openings: Mapping[tuple[str, str, str], int] = field(default_factory=dict[tuple[str, str, str], int])
    shared: SharedLimits = field(default_factory=SharedLimits)
    shadow_pico_usd: int | None = None
    treasury: Treasury = field(default_factory=Treasury)
    wait_seconds: float = WAIT_SECONDS
    _holds: dict[str, Hold] = field(default_factory=dict[str, Hold])
    _settled: dict[str, Hold] = field(default_factory=dict[str, Hold])
    _seen_limits: Mapping[str, Limits] | None = None
    _seen_shared: SharedLimits | None = None
    _counts_stays: bool = False

    def has_budget(self, key_id: str, *, team: str | None = None, project: str | None = None) -> bool:
        """Whether any budget applies to this key, its end users, its team, its project or everything."""
        return self.limits_end_users(key_id) or bool(self._budgets(key_id, team, project, None))

    def limits_end_users(self, key_id: str) -> bool:
        """Whether each end user of this key has a budget, so that its requests must name one."""
        return self.limits.get(key_id, UNLIMITED).end_user_budget_usd is not None

    @property
    def counts_stays(self) -> bool:
        """Whether any key or team has a concurrency limit; otherwise callers need not be identified for it."""
        if self._seen_limits is not self.limits or self._seen_shared is not self.shared:
            self._seen_limits, self._seen_shared = self.limits, self.shared
            bounded = (*self.limits.values(), *self.shared.teams.values())
            self._counts_stays = any(one.max_parallel_requests is not None for one in bounded)
        return self._counts_stays

    async def enter(self, key_id: str, *, team: str | None = None) -> Stay | None:
        """Start counting a request toward the concurrency limits of its key and team; None if there are none.

        Raises RateLimitExceeded.
        """
        bounds = [(f"key:{key_id}", self.limits.get(key_id, UNLIMITED).max_parallel_requests)]
        if team is not None:
            bounds.append((f"team:{team}", self.shared.teams.get(team, NO_RATES).max_parallel_requests))
        places = [Places(bucket, most) for bucket, most in bounds if most is not None]
        if not places:
            return None
        name, counters = secrets.token_hex(8), self.treasury.counters
        if full := await counters.enter(name, places):
            raise RateLimitExceeded(fewer_at_once(full), retry_after_seconds=PLACE_RETRY_SECONDS)
        return Stay(name, counters)

    @asynccontextmanager
    async def staying(self, key_id: str, *, team: str | None = None) -> AsyncGenerator[None]:
        """`enter` for the duration of the block. Raises RateLimitExceeded before it begins."""
        stay = await self.enter(key_id, team=team)
        try:
            yield
        finally:
            if stay is not None:
                stay.let_go()

    async def admit(self, key_id: str, *, team: str | None = None, tokens: int) -> Mapping[str, str]:
        """Take a request and its input tokens from the key's and the team's rates. Raises RateLimitExceeded.

        Returns what is left of them, as headers.
        """
        limits = self.limits.get(key_id, UNLIMITED)
        team_rates = self.shared.teams.get(team, NO_RATES) if team is not None else NO_RATES
        if limits.requests_per_minute is None and limits.tokens_per_minute is None and team_rates == NO_RATES:
            return NO_HEADERS
        rates = [*_rates(f"key:{key_id}", limits, tokens), *_rates(f"team:{team}", team_rates, tokens)]
        if not rates:
            return NO_HEADERS
        left: list[float] = []
        if shortage := await self.treasury.counters.take(rates, left):
            refusal = RateLimitExceeded(
                slower(shortage.rate, shortage.wait_seconds), retry_after_seconds=shortage.wait_seconds
            )
            refusal.headers = shortage_headers(shortage)
            raise refusal
        return rate_headers(rates, left)

    def counts_models(self, key_id: str) -> bool:
        """Whether any model has a rate, or this key a tier quota."""
        return bool(self.shared.models) or self.has_quotas(key_id)

    def has_quotas(self, key_id: str) -> bool:
        return bool(self.limits.get(key_id, UNLIMITED).tier_quotas)

    def is_counted(self, key_id: str, model: str) -> bool:
        """Whether the model has a rate or a quota for this key, so that `reserve` must name it before it serves."""
        return model in self.shared.models or self._tier(key_id, model) is not None

    def limits_key(self, key_id: str, team: str | None, project: str | None, end_user: str | None) -> bool:
        """Whether a budget, a model's rate or a quota applies, so that `reserve` may hold anything."""
        if self.holds_nothing(key_id):
            return False
        return self.counts_models(key_id) or bool(self._budgets(key_id, team, project, end_user))

    def holds_nothing(self, key_id: str) -> bool:
        """Whether no budget, model's rate or quota can apply to this key, whoever asks for what: often none is set."""
        return not (key_id in self.limits or self.strict or self.shared.models or key_id in OFF_PATH)

    async def reserve(
        self,
        request_id: str,
        key_id: str,
        amount_pico_usd: int | None,
        *,
        now_us: int,
        team: str | None = None,
        project: str | None = None,
        end_user: str | None = None,
        model: str = "",
        tokens: int = 0,
        may_wait: bool = True,
    ) -> None:
        """Hold the request's money in every budget that covers it, and its place in the model's rate, concurrency and
        tier. If it `may_wait` for money that is merely held, those who come later wait behind it.

        Raises ModelLimited when only the model is at its limit; BudgetExhausted when the money is not there (unknown
        prices are refused under any budget); Overloaded when the lease is spent while the shared store is down, or when
        past spending, all or the last of it, has not been read from the ledger yet.
        """
        budgets = self._budgets(key_id, team, project, end_user)
        if not (budgets or self.counts_models(key_id)):
            return
        hold = Hold()
        try:
            await self._take_place(hold, request_id, model)
            await self._take_model(hold, key_id, model, tokens, now_us)
            wait_seconds = self.wait_seconds if may_wait else 0.0
            await self._take_money(hold, budgets, amount_pico_usd, now_us, wait_seconds)
        except BaseException:
            hold.settle()
            raise
        if hold.is_charged or hold.stay is not None:
            self._holds[request_id] = hold

    def extend(self, request_id: str, to_pico_usd: int | None) -> bool:
        """Raise the amount held to this total, using only what this worker has leased. If False, nothing changed."""
        hold = self._holds.get(request_id)
        if hold is None or not hold.purses:
            return True
        if to_pico_usd is None:
            return False
        more = max(0, to_pico_usd - hold.amount)
        if any(self.treasury.free(purse) < more for purse in hold.purses):
            return False
        for purse in hold.purses:
            purse.extend(more)
        hold.amount += more
        return True

    async def fund(self, request_id: str, to_pico_usd: int | None, *, wait_seconds: float = EXTEND_SECONDS) -> bool:
        """Lease what `extend` to this amount needs, waiting briefly for money held elsewhere. False if it is not
        available."""
        hold = self._holds.get(request_id)
        if hold is None or not hold.purses:
            return True
        if to_pico_usd is None:
            return False
        more = max(0, to_pico_usd - hold.amount)
        deadline = self.treasury.monotonic() + min(wait_seconds, self.wait_seconds)
        try:  # while one purse is filled, others may empty another
            while lacking := next((one for one in hold.purses if self.treasury.free(one) < more), None):
                if await self.treasury.obtain(lacking, more, self._seconds_to(deadline)) is not None:
                    return False
        except CountersDown:
            return False
        return True

    def settle(self, request_id: str, cost_pico_usd: int | None, *, model: str = "") -> None:
        """Charge the cost and return the rest of what was held; an unknown cost is charged as the amount held."""
        hold = self._holds.pop(request_id, None)
        if hold is None:
            return
        hold.cost = hold.amount if cost_pico_usd is None else cost_pico_usd
        hold.counts = model in hold.quota_models
        hold.settle()
        if hold.is_charged:
            self._settled[request_id] = hold

    def carry(self, entry: Entry) -> None:
        """Charge a request settled before this process started and not yet in the database; `shipped` will name it."""
        intent, cost = entry.intent, entry.cost.total_pico_usd if entry.cost is not None else entry.cost_upper_pico_usd
        hold = Hold(cost=cost or 0, counts=True)
        for budget in self._budgets(intent.key_id, intent.team, intent.project, intent.end_user):
            hold.purses.append(self._purse(budget, intent.accepted_at_us)[0])
        if (tier := self._tier(intent.key_id, entry.model)) is not None:
            hold.quota = self._quota_purse(intent.key_id, tier, intent.accepted_at_us)
        hold.carry()
        self._settled[intent.request_id] = hold

    def cancel(self, request_id: str) -> None:
        """The request was never accepted: the ledger will have no entry."""
        if hold := self._holds.pop(request_id, None):
            hold.settle()

    def sending(self, request_ids: Iterable[str]) -> None:
        """These entries may be in the database from now on, if an earlier attempt did not write them already."""
        for request_id in request_ids:
            if (hold := self._settled.get(request_id)) is not None:
                hold.sending()

    def shipped(self, request_ids: Iterable[str]) -> None:
        """These entries are in the database; `sending` named them before."""
        for request_id in request_ids:
            if (hold := self._settled.pop(request_id, None)) is not None:
                hold.shipped()

    async def _take_place(self, hold: Hold, request_id: str, model: str) -> None:
        most = self.shared.models.get(model, NO_RATES).max_parallel_requests
        if most is None:
            return
        counters = self.treasury.counters
        if full := await counters.enter(request_id, [Places(f"model:{model}", most)]):
            raise ModelLimited(fewer_at_once(full), models=frozenset({model}), retry_after_seconds=PLACE_RETRY_SECONDS)
        hold.stay = Stay(request_id, counters)

    async def _take_model(self, hold: Hold, key_id: str, model: str, tokens: int, now_us: int) -> None:
        rates = list(_rates(f"model:{model}", self.shared.models.get(model, NO_RATES), tokens))
        if rates and (shortage := await self.treasury.counters.take(rates)):
            raise ModelLimited(
                slower(shortage.rate, shortage.wait_seconds),
                models=frozenset({model}),
                retry_after_seconds=shortage.wait_seconds,
            )
        tier = self._tier(key_id, model)
        if tier is None:
            return
        quota = self.limits[key_id].tier_quotas[tier]
        models = self.shared.tiers[tier]
        purse = self._quota_purse(key_id, tier, now_us)
        if await self._store_says_no(purse, 1, min(EXTEND_SECONDS, self.wait_seconds)):
            raise ModelLimited(
                quota_used_up(tier, quota), models=models, retry_after_seconds=seconds_left(quota.window, now_us)
            )
        hold.quota, hold.quota_models = purse, models

    def _budgets(self, key_id: str, team: str | None, project: str | None, end_user: str | None) -> list[StrictBudget]:
        """All budgets covering this money, always in the same order, so that requests cannot deadlock."""
        limits = self.limits.get(key_id, UNLIMITED)
        found: list[StrictBudget] = []
        if end_user is not None and (each := limits.end_user_budget_pico_usd) is not None:
            found.append(StrictBudget("end_user", f"{key_id}:{end_user}", each, limits.end_user_budget_window))
        if (own := limits.budget_pico_usd) is not None:
            found.append(StrictBudget("key", key_id, own, limits.budget_window))
        elif self.shadow_pico_usd is not None and key_id in OFF_PATH:
            found.append(StrictBudget("shadow", "", self.shadow_pico_usd, SHADOW_WINDOW))
        if not self.strict:
            return found
        shared: tuple[tuple[BudgetScope, str | None], ...] = (("team", team), ("project", project), ("all", ""))
        for scope, name in shared:
            if name is not None and (month := self.strict.get((scope, name))) is not None:
                found.append(StrictBudget(scope, name, month))
        return found

    async def _take_money(
        self, hold: Hold, budgets: Iterable[StrictBudget], amount: int | None, now_us: int, wait_seconds: float
    ) -> None:
        deadline = self.treasury.monotonic() + wait_seconds
        for budget in budgets:
            if amount is None:
                raise BudgetExhausted(price_unknown(budget))
            purse, opening = self._purse(budget, now_us)
            if refusal := await self._store_says_no(purse, amount, self._seconds_to(deadline)):
                # Take the larger, not the sum: for a while a charge is both in the ledger and held.
                spent = opening + max(refusal.surely_gone, refusal.held_spent + purse.holding.spent)
                held = refusal.held - refusal.held_spent + purse.reserved
                if self.treasury.is_blind and spent + held + amount <= budget.pico_usd:
                    raise Overloaded(budget_undecided(budget), retry_after_seconds=RETRY_SECONDS)
                raise BudgetExhausted(budget_spent(budget, spent=spent, held=held, needed=amount))
            hold.purses.append(purse)
            hold.amount = amount

    def _purse(self, budget: StrictBudget, at_us: int) -> tuple[Purse, int]:
        """The purse of a budget for the window of that moment, and what it had spent before it was imported."""
        window = window_id(budget.window, at_us)
        opening = self.openings.get((budget.scope, budget.name, window), 0) if self.openings else 0
        account = budget_account(budget.name, window, scope=budget.scope)
        return self.treasury.purse(account, budget.pico_usd - opening), opening

    def _seconds_to(self, deadline: float) -> float:
        return max(0.0, deadline - self.treasury.monotonic())

    async def _store_says_no(self, purse: Purse, amount: int, wait_seconds: float) -> Grant | None:
        """Reserve from the purse, filling it first if needed. None on success, otherwise the store's refusal."""
        while not self.treasury.reserve(purse, amount):
            try:
                refusal = await self.treasury.obtain(purse, amount, wait_seconds)
            except CountersDown as error:
                raise Overloaded(  # the error names the server, which belongs in the log and not in a response
                    "The shared store that counts budgets and quotas cannot be reached, and this worker's share of "
                    "this one is used up or expired. Try again once the store is back; the gateway's log says why.",
                    retry_after_seconds=RETRY_SECONDS,
                ) from error
            if refusal is not None and refusal.is_unread:  # spending is not known yet, so this is not a shortage
                raise Overloaded(
                    "What was spent under this limit is still being read from the database, as for every new limit and "
                    "after a restart of the shared store. Try again; if it lasts, the gateway's log says why.",
                    retry_after_seconds=RETRY_SECONDS,
                )
            if refusal is not None:
                return refusal
        return None

    def _quota_purse(self, key_id: str, tier: str, at_us: int) -> Purse:
        quota = self.limits[key_id].tier_quotas[tier]
        return self.treasury.purse(quota_account(key_id, tier, window_id(quota.window, at_us)), quota.requests)

    def _tier(self, key_id: str, model: str) -> str | None:
        """The key's quota tier that contains the model, if any."""
        quotas = self.limits.get(key_id, UNLIMITED).tier_quotas
        for tier in quotas:
            if model in self.shared.tiers.get(tier, ()):
                return tier
        return None


def _rates(whose: str, rates: Rates | Limits, tokens: int) -> Iterable[Rate]:
    if rates.requests_per_minute is not None:
        yield Rate(f"{whose}:requests", 1, rates.requests_per_minute)
    if rates.tokens_per_minute is not None:
        yield Rate(f"{whose}:tokens", tokens, rates.tokens_per_minute)
