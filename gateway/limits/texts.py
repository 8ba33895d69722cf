"""Messages for requests refused by a limit: which one, how much of it is left, what to do. Pure."""

from gateway.counted import counted
from gateway.limits.counters import Places, Rate
from gateway.limits.values import StrictBudget, TierQuota
from gateway.money import format_usd

SMALLEST_SHOWN_PLACES = 6


def slower(rate: Rate, wait_seconds: float) -> str:
    """A rate is used up for the moment."""
    kind, _, rest = rate.bucket.partition(":")
    name, _, what = rest.rpartition(":")
    who = "This key" if kind == "key" else f"The {kind} {name!r}"
    return f"{who} may use {rate.per_minute:,} {what} a minute; try again in {wait_seconds:.1f} s."


def fewer_at_once(places: Places) -> str:
    """The concurrency limit is reached."""
    kind, _, name = places.bucket.partition(":")
    who = "This key" if kind == "key" else f"The {kind} {name!r}"
    return (
        f"{who} already has {counted(places.most, 'request')} under way, the most it may have at once "
        "(max_parallel_requests). Try again when one has ended, send fewer at once, or have the limit raised."
    )


def quota_used_up(tier: str, quota: TierQuota) -> str:
    return (
        f"This key may have {quota.requests:,} requests per {quota.window} answered by models of the tier {tier!r}, "
        "and they are used up. Name another model or use auto."
    )


def budget_spent(budget: StrictBudget, *, spent: int, held: int, needed: int) -> str:
    """A budget lacks the money; amounts in pico-USD. Apps are not told the deployment's total spending, so no sums
    there."""
    if budget.scope == "all":
        return (
            f"The budget of {_whose(budget)} for this {budget.window} has too little left for this request. "
            "Lower max_tokens, or how often tools may search, wait for the next window or ask finance to raise the "
            "budget."
        )
    waiting = "" if needed > budget.pico_usd else "wait for the next window "  # waiting would not help
    return (
        f"The budget of {_whose(budget)} is ${_shown(budget.pico_usd)} per {budget.window}: ${_shown(spent)} is "
        f"spent, ${_shown(held)} is held by requests under way, and this request needs "
        f"${_shown(needed)}. Lower max_tokens, or how often tools may search, {waiting}or raise the budget."
    )


def budget_undecided(budget: StrictBudget) -> str:
    """What is known of a budget neither covers the request nor refuses it: the ledger cannot be read."""
    return (
        f"Whether the budget of {_whose(budget)} has enough left for this request is only known once the database "
        "shows what was spent last. Try again; if it lasts, the gateway's log says why."
    )


def price_unknown(budget: StrictBudget) -> str:
    """A budget cannot be enforced for a model whose price is unknown."""
    whose = "This key has a budget" if budget.scope == "key" else f"There is a strict budget of {_whose(budget)}"
    return (
        f"{whose}, so the model cannot be used: its price, or that of a tool that its provider would run, is not "
        "known. Name another model, leave the tool out, or have the price added: `breakeven check` shows which models "
        "have none, and `price_overrides` in breakeven.yaml names a file with it."
    )


def _whose(budget: StrictBudget) -> str:
    if budget.scope == "key":
        return "this key"
    if budget.scope == "shadow":
        return "shadow calls"
    if budget.scope == "end_user":
        return "this end user of the key"  # a name belongs in no log
    return "this deployment" if budget.scope == "all" else f"the {budget.scope} {budget.name!r}"


def _shown(pico_usd: int) -> str:
    return format_usd(pico_usd, places=SMALLEST_SHOWN_PLACES)
