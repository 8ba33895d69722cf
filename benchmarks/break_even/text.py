"""The report in words, for a reader who closes books and has never seen a GPU. Figures are filled in, never typed."""

import textwrap
from decimal import Decimal

from benchmarks.break_even.month import DAYS, HOSTED, PLAN
from benchmarks.break_even.study import Study
from gateway.economics.payback import Payback


def write_text(study: Study) -> str:
    """docs/break-even.md."""
    report = study.report
    month, unit, owned, odds = report.month, report.unit, report.owned, report.confidence
    assert odds is not None
    assert unit.break_even_utilisation is not None
    assert report.volume.hybrid is not None
    second = report.staircase[1]
    queue_share = study.queue_saving_usd / study.fluid_saving_usd
    overflow_share = study.overflow_saving_usd / study.fluid_saving_usd
    apart = abs(study.simulated_saving_usd / study.expected_saving_of_simulated_arrivals_usd - 1)
    assert month.self_hosted_usd > max(row.fluid_total_usd for row in report.staircase), "the text says the dearest"
    text = f"""# Should we rent a GPU? A worked report

This is the report that `breakeven break-even` writes, on a made-up but realistic month, explained line by line. It is
written by `python -m benchmarks.break_even --report docs`; no figure in it was typed by hand. The traffic is synthetic
(April 2026: office hours, weekends, one outage, one nightly batch), the prices are illustrative, and the GPU's speed is
the assumed curve of [economics.md](economics.md), not a measurement. With your own ledger, the same command reads your
own traffic. *Hosted* means at a provider's API. A month here is {month.hours:g} hours, which is {DAYS} days.

## The answer

> {report.verdict}

The rest of this page says where each of these numbers comes from and how far to trust it.

## What happened

{report.observed.requests:,} requests came in, {report.observed.requests_per_day:,.0f} a day. A mean request sends
{report.observed.input_tokens_per_request:,.0f} tokens ({report.observed.cached_input_share:.0%} of them repeated from
before and therefore cheaper) and receives {report.observed.output_tokens_per_request:,.0f}. The hosted model charged
{_cents(report.observed.ledger_cost_usd)} for all of it: that is the ledger's own sum, exact to the last digit.

![Requests per second over the month, with the capacity of one, two and three replicas](images/break-even-load.png)

The blue area is the traffic. The busiest hour is {unit.peak_to_mean:.1f} times the average, because of one batch in the
night of the 22nd. A *replica* is one running copy of the model on a GPU; each green line is what one more can carry
({unit.requests_per_second_per_replica:.2f} requests a second each).

## What one request costs

| | dollars |
|---|---|
| hosted, per request | {unit.hosted_usd_per_request:.6f} |
| on the GPU, if the GPU were always full | {owned.busy_usd_per_request:.6f} |
| on the GPU, with its idle hours included | {_or_idle(owned.allocated_usd_per_request)} |
| on the GPU, one request more while it has room | {owned.marginal_usd_per_request:.6f} |

The second line is the figure that sales pages show. The third is what the ledger will show: the rent is due whether
requests come or not. The fourth is why a GPU that is already paid for should be kept busy: one more request costs only
electricity. Of {_cents(owned.rent_usd)} rent, {_cents(owned.idle_usd)} would pay for idle time. It is booked on a line
of its own and never hidden in the price of a request.

## How busy must it be?

A full replica saves {_cents(unit.value_usd_per_hour)} of hosted calls in one hour, its electricity taken off and
aborted requests not counted, and its hour costs {_cents(unit.replica_hour_usd)}. So it earns its rent when at least
**{unit.break_even_utilisation:.1%} of its capacity** is used. On this month's traffic the first replica would use
{owned.utilisation:.1%}. Fixed costs ({_cents(_fixed())} a month here, for the people and storage that come with it) are
on top.

## One replica, or more?

![What each further replica takes off the hosted bill, beside its rent](images/break-even-staircase.png)

The first replica takes {_cents(report.staircase[0].value_usd)} off the hosted bill and costs
{_cents(report.staircase[0].rent_usd)}. The second sees only what the first could not carry: it takes
{_cents(second.value_usd)} off and costs the same, so it {"pays too" if second.pays else "does not pay"}. Each further
one is worth less; that is why the picture is called a staircase.

| replicas always on | monthly bill without random arrivals | with them, and instant overflow |
|---|---|---|
| none, everything hosted | {_cents(month.all_hosted_usd)} | {_cents(month.all_hosted_usd)} |
{_staircase_rows(study)}
| switched hourly, start-ups included | {_cents(month.hourly_scaling_usd)} | |
| nothing hosted, sized for the peak: {month.self_hosted_replicas} | {_cents(month.self_hosted_usd)} | |

Hosting nothing at all is the most expensive line of the table: the fleet has to be large enough for the busiest hour
and stands idle in all others. Switching replicas off at night saves most, if the provider really lets you.

## Why overflow matters

![The same replica under three ways of handling a full GPU](images/break-even-disciplines.png)

A GPU that makes callers wait must turn work away early to keep its promise (first token within a second, for 95 % of
requests): it keeps {queue_share:.0%} of what is possible. Sending a request to the hosted model the moment no slot is
free keeps {overflow_share:.0%}. That is what having the router and the GPU in one place is worth:
{_cents(Decimal(study.overflow_saving_usd - study.queue_saving_usd))} a month, on one GPU.

The overflow bar is a formula. The black dot is a simulation that shares no code with it: every one of the month's
arrivals one at a time, through {study.engine.concurrency} slots. On the same arrivals, the two differ by
{apart:.1%}.

## From what volume does owning pay?

![Monthly bill against requests a day](images/break-even-volume.png)

At this mix of requests the lines cross at **{report.volume.hybrid.requests_per_day:,.0f} requests a day**, which is
{_cents(report.volume.hybrid.hosted_usd_per_month)} of hosted calls a month. The dollars apply more widely than the
requests: with shorter requests or a more expensive model, the same dollars are a different number of requests.
{_self_hosted(study)}

## How sure is this?

Days differ, and the hours of one day are alike, so the interval comes from resampling whole days
({odds.resamples:,} times): the month's saving lies between {_cents(odds.saving_low_usd)} and
{_cents(odds.saving_high_usd)} in nine resamples of ten, and owning was cheaper in
{odds.probability_owning_is_cheaper:.1%} of all resamples. That covers chance, not a wrong price or speed. For those:

![The saving with each input a quarter lower and higher](images/break-even-tornado.png)

{_tornado(study)}

## Buying instead of renting

![Recovered dollars after buying, for three futures of hosted prices](images/break-even-payback.png)

Bought for {_cents(Decimal(study.purchase.purchase_usd))} and run for
{_cents(Decimal(study.purchase.running_usd_per_month + study.purchase.fixed_usd_per_month))} a month, the same replica
replaces {_cents(Decimal(study.replaced_usd_per_month))} of hosted calls a month at first. It is paid back
{_paybacks(study.paybacks)}. Hosted prices have fallen for years: the flat line is the optimistic one for a buyer.

## Quality

The hosted model scores {HOSTED.quality} on this traffic's evaluation set and the model on the GPU
{PLAN.quality} (both made up here). A bill that falls because answers got worse is no saving, so every comparison should
show both numbers. The router's rules set the floor.

## What this report cannot promise

{_caveats(study)}
"""
    return "\n\n".join(_wrapped(paragraph) for paragraph in text.strip().split("\n\n")) + "\n"


def _wrapped(paragraph: str) -> str:
    """Prose at 120 columns; headings, tables, lists and pictures as they are."""
    if paragraph.startswith(("#", "|", "-", "!")):
        return paragraph
    prefix = "> " if paragraph.startswith("> ") else ""
    return textwrap.fill(paragraph.removeprefix(prefix), 120, initial_indent=prefix, subsequent_indent=prefix)


def _fixed() -> Decimal:
    return Decimal(PLAN.fixed_month_pico_usd) / 10**12


def _staircase_rows(study: Study) -> str:
    return "\n".join(
        f"| {row.replicas} | {_cents(row.fluid_total_usd)} | {_cents(row.overflow_total_usd or row.fluid_total_usd)} |"
        for row in study.report.staircase
    )


def _self_hosted(study: Study) -> str:
    ranges = study.report.volume.self_hosted
    if not ranges:
        return "There is no volume at which doing without the hosted model is cheaper, because of the peak."
    first = ranges[0].start.requests_per_day
    return f"Doing without the hosted model is cheaper from {first:,.0f} a day on, in {len(ranges)} separate range(s)."


def _tornado(study: Study) -> str:
    first = study.report.tornado[0]
    turns = [
        swing.input
        for swing in study.report.tornado
        if min(swing.saving_at_minus_25_percent_usd, swing.saving_at_plus_25_percent_usd) < 0
    ]
    text = (
        f"The widest bar is the {first.input}: a quarter lower or higher moves the saving between"
        f" {_cents(first.saving_at_minus_25_percent_usd)} and {_cents(first.saving_at_plus_25_percent_usd)}."
    )
    if turns:
        return f"{text} If off by a quarter, these would change the answer: {', '.join(turns)}."
    return f"{text} No single input, if off by a quarter, changes the answer."


def _paybacks(paybacks: dict[str, Payback]) -> str:
    return "; ".join(
        f"in month {result.month} with hosted prices {name}"
        if result.month is not None
        else f"never with hosted prices {name} (recovery peaks at {_cents(Decimal(result.best_recovered_usd))})"
        for name, result in paybacks.items()
    )


def _caveats(study: Study) -> str:
    return "\n".join(f"- {note}" for note in study.report.caveats)


def _or_idle(amount: Decimal | None) -> str:
    return "idle" if amount is None else f"{amount:.6f}"


def _cents(amount: Decimal) -> str:
    return f"-${-amount:,.2f}" if amount < 0 else f"${amount:,.2f}"
