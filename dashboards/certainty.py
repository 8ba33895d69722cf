"""Banners for a sum of costs: which part is simulated, what is left out, what is estimated, and what nobody asked for.
Pure."""

from decimal import Decimal
from html import escape
from typing import Any

from dashboards import display, markup

ADDS_UP = "Rows add up to the total, but each figure is rounded on its own; point at a spend to see every digit."


def simulated(total: dict[str, Any]) -> str:
    """Empty if no answer was simulated. `total` is a row of a cost report."""
    requests = total["simulated_requests"]
    if not requests and not float(total["simulated_usd"]):
        return ""
    if requests and requests == total["requests"]:
        said = "All of these requests are simulated"
    else:
        amount = display.dollars(total["simulated_usd"])
        said = f"{requests:,} of these requests, {amount} of the spend, are simulated"
    return _banner(f"{said}, at list prices: no money was spent on them.", is_warning=True)


def nothing_spent(total: dict[str, Any]) -> str:
    """Instead of a chart whose values are all zero or unknown."""
    said = f"{markup.counted(total['requests'], 'request')} in this time"
    without = total["unpriced_requests"]
    if without:
        return markup.message("Nothing to draw", f"{said}, of which {without:,} without a known price.")
    return markup.message("Nothing was spent", f"{said}, and none cost anything.")


def left_out(total: dict[str, Any]) -> str:
    """Requests without a known price, and with estimated token counts. Empty if there are none."""
    found = ""
    if total["unpriced_requests"]:
        found += _banner(
            f"No price is known for {total['unpriced_requests']:,} of these requests: they are in no sum here. Add the "
            "price, then run <code>breakeven prices reprice</code>. Those with the status orphaned, which a "
            "process left behind when it died, stay without one, and so do those with an unanswered attempt of unknown "
            "cost. Where only some requests of a model have a price, prices per million tokens take all of them for "
            "equally long.",
            is_warning=True,
        )
    if total["estimated_requests"]:
        found += _banner(
            f"Token counts are estimated for {total['estimated_requests']:,} of these requests, whose provider "
            "reported no usage."
        )
    if total["cost_lower_usd"] != total["cost_upper_usd"]:
        found += _banner(_between(total))
    return found


def off_path(found: dict[str, Any]) -> str:
    """What shadow calls and their judge cost, of a cost report or an overview. Empty if they cost nothing."""
    parts = (("shadow calls", found["shadow_usd"]), ("the judge of their answers", found["judge_usd"]))
    costs = [f"{what} cost {display.dollars(usd)}" for what, usd in parts if Decimal(usd)]
    if not costs:
        return ""
    return _banner(f"Of this spend, {' and '.join(costs)}: the gateway's own requests, which belong to no team.")


def of_groups(found: dict[str, Any]) -> str:
    """All banners of a cost report. Empty if there is nothing to say."""
    said = ""
    if found["unallocated_share"]:
        share, usd = display.share(found["unallocated_share"]), display.dollars(found["unallocated_usd"])
        said = _banner(f"{share} of this spend ({usd}) has no owner among these groups.")
    return said + off_path(found) + simulated(found["total"]) + left_out(found["total"])


def without_team(found: dict[str, Any], keys: str) -> str:
    """What keys without a team spent, of an overview; `keys` is the address of their list. Empty if nothing. Nobody can
    give shadow calls and their judge a team, so they do not count."""
    usd = Decimal(found["unallocated_usd"]) - Decimal(found["shadow_usd"]) - Decimal(found["judge_usd"])
    spent = Decimal(found["total"]["cost_usd"])
    if not usd or not spent:
        return ""
    share = display.share(float(usd / spent))
    return _banner(
        f"{share} of the spend ({display.dollars(usd)}) belongs to no team. Give "
        f'<a href="{escape(keys)}">its keys</a> a team to allocate it.'
    )


def _between(total: dict[str, Any]) -> str:
    lower, upper = (display.dollars(total[name]) for name in ("cost_lower_usd", "cost_upper_usd"))
    most = "; some of it has no upper bound" if total["cost_upper_usd"] is None else f" and at most {upper}"
    corrections = total["corrections_usd"]
    without = f", corrections of {display.dollars(corrections)} left out" if Decimal(corrections) else ""
    return f"Estimates and unknown prices included, the spend is at least {lower}{most}{without}."


def _banner(text: str, *, is_warning: bool = False) -> str:
    return f'<div class="be-banner{" warn" if is_warning else ""}">{text}</div>'
