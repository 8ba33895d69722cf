"""What the same tokens would have cost at one hosted model, less what they did cost. Pure."""

from collections.abc import Sequence

from gateway.economics.traffic import HourlyTraffic
from gateway.money import format_usd, parse_usd
from gateway.reports.plans import hosted_alternative, hosted_candidates, pick_alternative
from gateway.reports.views import IdleCost, Savings
from gateway.routing.snapshot import Snapshot
from gateway.sums import Sums


def savings(snapshot: Snapshot, total: Sums, shadow: Sums, used: Sequence[str], idle: IdleCost | None) -> list[Savings]:
    """Against the hosted model used most (`used`: most used first), and against the dearest. Idle rent counts as spent,
    and so do shadow calls, which nobody would have made there.

    At the prices of `snapshot`; empty without a priced hosted model or without requests.
    """
    hosted = hosted_candidates(snapshot)
    if not hosted or not total.requests:
        return []
    chosen = {one.name: one for one in (pick_alternative(snapshot, None, used), hosted[-1])}
    traffic = HourlyTraffic(
        hour_start_us=0,
        model="",
        requests=total.requests - shadow.requests,
        input_tokens=total.input_tokens - shadow.input_tokens,
        cached_input_tokens=total.cached_input_tokens - shadow.cached_input_tokens,
        output_tokens=total.output_tokens - shadow.output_tokens,
        gpu_seconds=0.0,
        cost_pico_usd=0,
        list_cost_pico_usd=0,
        aborted_requests=total.aborted_requests - shadow.aborted_requests,
    )
    spent = total.corrected_cost_pico_usd + (0 if idle is None else parse_usd(idle.idle_usd))
    found: list[Savings] = []
    for candidate in chosen.values():
        would = hosted_alternative(candidate).price(traffic)
        found.append(
            Savings(
                against=candidate.name,
                would_have_cost_usd=format_usd(would),
                saved_usd=format_usd(would - spent),
                saved_share=(would - spent) / would if would else None,
                covered_requests=traffic.requests,
            )
        )
    return found
