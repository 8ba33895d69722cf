"""The report's answer in plain English, with its numbers and caveats."""

from gateway.counted import counted
from gateway.economics.demand import Demand
from gateway.economics.gpu_cost import Engine
from gateway.economics.report import BreakEvenReport
from gateway.economics.traffic import GpuPlan, HostedAlternative, Period
from gateway.money import show_usd

LEAST_HOURS_FOR_A_MONTH = 24 * 28
LEAST_HOURS_FOR_A_WEEK = 24 * 7
NOTABLE_SHARE = 0.05
"""A difference between shares that a reader would ask about."""


def write_verdict(report: BreakEvenReport) -> str:
    """One paragraph: the data, the two bills, the break-even, the odds."""
    return " ".join(
        [_data(report), _bills(report), _utilisation(report), _volume(report), _odds(report), _quality(report)]
    )


def list_caveats(
    demand: Demand, plan: GpuPlan, hosted: HostedAlternative, period: Period, engine: Engine | None
) -> tuple[str, ...]:
    """Answers to the questions a careful reader would ask."""
    notes = [
        f"A month is {plan.hours_per_month:g} hours; the {counted(period.hours, 'hour')} seen"
        f" {'is' if period.hours == 1 else 'are'} scaled to it."
    ]
    if period.hours < LEAST_HOURS_FOR_A_WEEK:
        notes.append("Less than a week of data: no weekend or weekday pattern is in it.")
    if engine is None:
        notes.append(
            "GPU-seconds per request are the ledger's own, at the batch sizes that occurred; a fuller GPU needs fewer."
            " Without a throughput curve the figures are the fluid bound, which instant overflow nearly reaches."
        )
    else:
        source = "measured" if engine.is_measured else "assumed, not measured"
        notes.append(
            f"Throughput is {source}, at {counted(engine.concurrency, 'concurrent sequence')}; nothing is extrapolated."
            " Prompts are taken to find the same share of their prefix cached on the GPU as in the traffic."
        )
    if demand.measured_requests and demand.measured_requests < demand.requests and engine is None:
        notes.append("Requests that were hosted are taken to need the same GPU-seconds as those that ran locally.")
    if demand.unpriced_requests:
        known = "has" if demand.unpriced_requests == 1 else "have"
        notes.append(
            f"{counted(demand.unpriced_requests, 'request')} {known} no known price: the ledger's cost is without."
        )
    if demand.estimated_share:
        notes.append(f"{demand.estimated_share:.1%} of requests have estimated token counts; the interval is widened.")
    if demand.aborted_requests:
        notes.append(
            f"{counted(demand.aborted_requests, 'aborted request')}: GPU-seconds were taken and no saving is credited."
        )
    if hosted.quality is None or plan.quality is None:
        notes.append("Quality was not measured on both sides: this compares prices, not answers.")
    return tuple(notes)


def _data(report: BreakEvenReport) -> str:
    seen = report.observed
    text = (
        f"Over {counted(seen.hours, 'hour')} of data ({counted(seen.days, 'calendar day')}) "
        f"there {'was' if seen.requests == 1 else 'were'} {counted(seen.requests, 'request')}, "
        f"{seen.requests_per_day:,.0f} a day."
    )
    if seen.hours < LEAST_HOURS_FOR_A_MONTH:
        text += " That is less than a month: every monthly figure assumes that the rest of it looks the same."
    return text


def _bills(report: BreakEvenReport) -> str:
    month = report.month
    saves = month.plan_saving_usd >= 0
    text = (
        f"With everything hosted at {report.hosted}, a {month.hours:g}-hour month costs"
        f" {show_usd(month.all_hosted_usd)}; with {_replicas(report.owned.replicas)} of"
        f" {report.plan} and the rest hosted it costs"
        f" {show_usd(month.plan_usd)}, which is {show_usd(abs(month.plan_saving_usd))} {'less' if saves else 'more'}."
    )
    if month.best_replicas != report.owned.replicas:
        best = f"{_replicas(month.best_replicas)} at {show_usd(month.best_usd)}" if month.best_replicas else "none"
        text += f" The cheapest always-on fleet is {best}."
    return text


def _utilisation(report: BreakEvenReport) -> str:
    least, owned = report.unit.break_even_utilisation, report.owned
    if least is None:
        return "The hosted alternative costs nothing more than the GPU's own electricity, so owning can never pay."
    if least > 1:
        return f"A GPU would have to be used to {least:.0%} of what it can do, which cannot be: owning never pays here."
    text = (
        f"A GPU earns its rent from {least:.1%} of its capacity on; this one"
        f" {'used' if owned.is_measured else 'would use'} {owned.utilisation:.1%}"
    )
    if owned.busy_share > owned.utilisation + NOTABLE_SHARE:
        text += f" (it computed {owned.busy_share:.1%} of the time, in batches smaller than it can take)"
    return text + "."


def _volume(report: BreakEvenReport) -> str:
    volume = report.volume
    if volume.hybrid is None or volume.hybrid_replicas is None:
        return "At this mix no volume makes a GPU pay."
    text = (
        f"At this mix, break-even is at {volume.hybrid.requests_per_day:,.0f} requests a day"
        f" ({show_usd(volume.hybrid.hosted_usd_per_month)} of hosted calls a month) with"
        f" {_replicas(volume.hybrid_replicas)} beside the hosted model"
    )
    if not volume.self_hosted:
        return text + "; doing without it never pays, because the fleet must be sized for the peak."
    first = volume.self_hosted[0].start
    gaps = ", but not at each volume above: every further GPU must fill first" if len(volume.self_hosted) > 1 else ""
    return text + f", and at {first.requests_per_day:,.0f} a day with nothing hosted{gaps}."


def _odds(report: BreakEvenReport) -> str:
    odds = report.confidence
    if odds is None:
        return "One day of data gives no interval: whether this saving is luck cannot be said."
    text = (
        f"Resampling whole days puts the saving between {show_usd(odds.saving_low_usd)} and"
        f" {show_usd(odds.saving_high_usd)} (5% to 95%), and owning is cheaper in"
        f" {odds.probability_owning_is_cheaper:.0%} of the resamples."
    )
    return text if odds.days >= 7 else text + f" With only {odds.days} days these odds are weak."


def _quality(report: BreakEvenReport) -> str:
    if report.plan_quality is None and report.hosted_quality is None:
        return "Quality: not measured on either side."
    return f"Quality: {_q(report.plan_quality)} owned against {_q(report.hosted_quality)} hosted."


def _q(quality: float | None) -> str:
    return "not measured" if quality is None else f"{quality:.3f}"


def _replicas(count: int) -> str:
    return "one replica" if count == 1 else f"{count} replicas"
