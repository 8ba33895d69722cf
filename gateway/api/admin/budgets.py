"""`/admin/v1/budgets`: monthly budgets of teams, projects and the whole deployment, and what is spent of each."""
# pyright: reportUnusedFunction=false

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import date
from decimal import Decimal
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import AfterValidator, BaseModel, Field, model_validator

from gateway.access.keys import KeyRecord, KeyRing
from gateway.api.admin.guard import Caller, OnlyTeam, needs
from gateway.errors import InvalidRequest, NotFound
from gateway.limits.values import BudgetScope, WindowName
from gateway.money import MOST_USD, format_usd, parse_usd
from gateway.notices.key_budgets import KeySpent
from gateway.reports.budgets_service import BudgetsService, Standing
from gateway.reports.daily_costs import BudgetBurn
from gateway.stores import Budget
from gateway.strict import Strict

MOST_KEYS = 1000


def _amount(text: str) -> str:
    try:
        usd = Decimal(text)
        pico = parse_usd(text)
    except (ArithmeticError, ValueError) as error:
        raise ValueError("is not an amount of dollars such as 2500 or 2500.50") from error
    if not 0 < usd <= MOST_USD:
        raise ValueError(f"must be above 0 and at most {MOST_USD:,} dollars a month")
    return format_usd(pico)


class NewBudget(Strict):
    """`name` is the team or project; leave it out with the scope `all`. A budget only warns, unless it `stops`."""

    scope: BudgetScope
    name: str = Field(default="", max_length=64)
    month_usd: Annotated[str, Field(max_length=40), AfterValidator(_amount)]
    stops: bool = False

    @model_validator(mode="after")
    def _has_its_name(self) -> "NewBudget":
        if (self.scope == "all") != (self.name == ""):
            raise ValueError("the budget of a team or project needs its name; the one of scope `all` has none")
        return self


class BudgetOutlook(BaseModel):
    """The 5th, 50th and 95th percentile of simulated months. `runs_out`: the day by which half of them have spent the
    budget; null if they do not within the month."""

    low_usd: str
    expected_usd: str
    high_usd: str
    probability_of_exceeding: float
    runs_out: date | None


class BudgetRow(BaseModel):
    """The current state of a budget. `taken_over_usd` is the part of `spent_usd` that was spent through LiteLLM this
    month before it was imported; no report has it. `outlook` is null until two complete days are known, or without the
    reports extra. `keys` is the number of active keys that the budget covers; at 0, no key has that team or project, or
    the name is misspelt."""

    scope: BudgetScope
    name: str
    month_usd: str
    stops: bool
    spent_usd: str
    taken_over_usd: str
    spent_share: float
    keys: int
    outlook: BudgetOutlook | None
    set_by: str
    set_at_us: int


class BudgetList(BaseModel):
    budgets: list[BudgetRow]


class RemovedBudget(BaseModel):
    """The budget that was removed."""

    scope: BudgetScope
    name: str


class KeyBudgetRow(BaseModel):
    """A key's own budget and what is spent of it in the current window (UTC); once it is used up, the key is refused. A
    request whose process died counts at its maximum cost. `taken_over_usd` is the part of `spent_usd` that was spent
    through LiteLLM before the key was imported; no report has it."""

    id: str
    name: str
    team: str | None
    window: WindowName
    budget_usd: str
    spent_usd: str
    taken_over_usd: str
    spent_share: float


class KeyBudgetList(BaseModel):
    """Largest share spent first. `with_budget` is the number of keys that have a budget."""

    keys: list[KeyBudgetRow]
    with_budget: int


KeysSpent = Callable[[], Awaitable[Sequence[KeySpent]]]
Counted = Counter[tuple[BudgetScope, str]]


def build_budgets_router(
    budgets: BudgetsService, now_us: Callable[[], int], keys_spent: KeysSpent, ring: KeyRing
) -> APIRouter:
    """The paths below `/budgets`."""
    router = APIRouter(prefix="/budgets", tags=["admin: budgets"])

    @router.get("", openapi_extra=needs("reports.read", or_lead=True))
    async def list_budgets(only_team: OnlyTeam, scope: Annotated[BudgetScope | None, Query()] = None) -> BudgetList:
        """Every monthly budget (or those of one scope), what is spent of it and the forecast for the month (UTC)."""
        standings = await budgets.standings(only_team, scope)
        counted = keys_by_budget(ring.working(now_us()))
        return BudgetList(budgets=[budget_row(one, counted) for one in standings])

    @router.get("/keys", openapi_extra=needs("keys.read", or_lead=True))
    async def list_key_budgets(
        only_team: OnlyTeam, limit: Annotated[int, Query(ge=1, le=MOST_KEYS)] = 50
    ) -> KeyBudgetList:
        """Budgets of single keys, and how much of each is spent."""
        found = [one for one in await keys_spent() if only_team in (None, one.record.team)]
        found.sort(key=lambda one: (-one.share, one.record.name))
        return KeyBudgetList(keys=[_key_row(one) for one in found[:limit]], with_budget=len(found))

    @router.put("", openapi_extra=needs("budgets.write"))
    async def set_budget(new: NewBudget, caller: Caller) -> BudgetRow:
        """Create or replace a budget. It only warns; with `stops`, requests beyond it are refused with 429."""
        budget = Budget(new.scope, new.name, parse_usd(new.month_usd), caller.name, now_us(), stops=new.stops)
        return budget_row(await budgets.set(budget), keys_by_budget(ring.working(now_us())))

    @router.delete("", openapi_extra=needs("budgets.write"))
    async def remove_budget(
        caller: Caller, scope: Annotated[BudgetScope, Query()], name: Annotated[str, Query(max_length=64)] = ""
    ) -> RemovedBudget:
        """Remove a budget. The audit log keeps a record of it."""
        if (scope == "all") != (name == ""):
            raise InvalidRequest("Give the name of the team or project; scope `all` takes none.", param="name")
        if not await budgets.remove(scope, name, author=caller.name):
            raise NotFound(f"There is no budget for {scope} {name!r}.", code="budget_not_found")
        return RemovedBudget(scope=scope, name=name)

    return router


def keys_by_budget(keys: Iterable[KeyRecord]) -> Counted:
    """The number of keys by budget scope and name, whether or not such a budget exists."""
    found = Counted()
    for one in keys:
        found["all", ""] += 1
        if one.team is not None:
            found["team", one.team] += 1
        if one.project is not None:
            found["project", one.project] += 1
    return found


def budget_row(standing: Standing, counted: Counted) -> BudgetRow:
    budget = standing.budget
    return BudgetRow(
        scope=budget.scope,
        name=budget.name,
        month_usd=format_usd(budget.month_pico_usd),
        stops=budget.stops,
        spent_usd=format_usd(standing.spent_pico_usd),
        taken_over_usd=format_usd(standing.opening_pico_usd),
        spent_share=standing.share,
        keys=counted[budget.scope, budget.name],
        outlook=_outlook(standing.burn),
        set_by=budget.set_by,
        set_at_us=budget.set_at_us,
    )


def _key_row(one: KeySpent) -> KeyBudgetRow:
    return KeyBudgetRow(
        id=one.record.id,
        name=one.record.name,
        team=one.record.team,
        window=one.window,
        budget_usd=format_usd(one.amount_pico_usd),
        spent_usd=format_usd(one.spent_pico_usd),
        taken_over_usd=format_usd(one.opening_pico_usd),
        spent_share=one.share,
    )


def _outlook(burn: BudgetBurn | None) -> BudgetOutlook | None:
    if burn is None:
        return None
    return BudgetOutlook(
        low_usd=format_usd(burn.projected.low_pico_usd),
        expected_usd=format_usd(burn.projected.middle_pico_usd),
        high_usd=format_usd(burn.projected.high_pico_usd),
        probability_of_exceeding=burn.probability_of_exceeding,
        runs_out=burn.runs_out_middle,
    )
