"""The break-even report in one heading and a few facts: which is cheaper, from what volume on, how sure. Pure."""

from decimal import Decimal
from typing import Any

from dashboards import display, markup

WEAK_DAYS = 7
"""Fewer days than this say little about how days differ."""


def heading(report: dict[str, Any]) -> str:
    """The answer in one line."""
    saving = Decimal(report["month"]["plan_saving_usd"])
    if not saving:
        return "Your own GPU and everything hosted cost the same"
    own = "Your own GPU is" if report["owned"]["replicas"] == 1 else "Your own GPUs are"
    return f"{own if saving > 0 else 'Everything hosted is'} cheaper, by {display.dollars(abs(saving))} a month"


def because(report: dict[str, Any]) -> str:
    """The two bills that the heading compares."""
    month, owned = report["month"], report["owned"]
    return (
        f"At {_a_day(report['observed']['requests_per_day'])} everything hosted at {report['hosted']} costs "
        f"{display.dollars(month['all_hosted_usd'])} a month; {markup.counted(owned['replicas'], 'GPU')} "
        f"({report['plan']}) and the rest hosted cost {display.dollars(month['plan_usd'])}."
    )


def facts(report: dict[str, Any]) -> list[tuple[str, str]]:
    """Answers to the questions that follow."""
    named = [
        ("Owning pays from", _from(report)),
        ("How sure", _how_sure(report["confidence"])),
        ("What matters most", _what_matters(report["tornado"])),
        ("Quality of answers", _quality(report["plan_quality"], report["hosted_quality"])),
    ]
    return [(name, said) for name, said in named if said]


def _a_day(requests: float) -> str:
    return f"{requests:,.0f} requests a day"


def _from(report: dict[str, Any]) -> str:
    volume, here = report["volume"]["hybrid"], report["observed"]["requests_per_day"]
    if volume is None:
        return "no volume, at this mix and these prices"
    least = volume["requests_per_day"]
    fleet = markup.counted(report["volume"]["hybrid_replicas"], "GPU")
    times = f"{least / here:,.1f} times as many as here" if least > here else f"fewer than the {here:,.0f} here"
    return f"{_a_day(least)} on, with {fleet}: {times}"


def _how_sure(odds: dict[str, Any] | None) -> str:
    if odds is None:
        return "not known: one day does not show how much days differ"
    chance = display.share(odds["probability_owning_is_cheaper"], places=0)
    weak = f" {odds['days']} days are too few to be sure." if odds["days"] < WEAK_DAYS else ""
    within = _between(Decimal(odds["saving_low_usd"]), Decimal(odds["saving_high_usd"]))
    return f"{chance} chance that owning is cheaper; nine times in ten it {within}.{weak}"


def _between(low: Decimal, high: Decimal) -> str:
    """An interval of savings in words; a negative saving is an extra cost."""
    if low >= 0:
        return f"saves {display.dollars(low)} to {display.dollars(high)} a month"
    if high <= 0:
        return f"costs {display.dollars(-high)} to {display.dollars(-low)} a month more"
    return f"lies between {display.dollars(-low)} a month more and {display.dollars(high)} less"


def _what_matters(swings: list[dict[str, Any]]) -> str:
    lower, higher = "saving_at_minus_25_percent_usd", "saving_at_plus_25_percent_usd"
    most = max(swings, key=lambda one: abs(float(one[higher]) - float(one[lower])), default=None)
    if most is None or most[higher] == most[lower]:
        return ""
    return (
        f"{most['input']}: a quarter lower, owning {_saves(most[lower])}; a quarter higher, it {_saves(most[higher])}"
    )


def _saves(usd: str | float) -> str:
    saving = Decimal(str(usd))
    return (
        f"saves {display.dollars(saving)} a month" if saving >= 0 else f"costs {display.dollars(-saving)} a month more"
    )


def _quality(owned: float | None, hosted: float | None) -> str:
    if owned is None or hosted is None:
        return "not measured on both sides: prices are compared, not answers"
    return f"{owned:.2f} owned, {hosted:.2f} hosted"
