"""Notice that a month is likely to exceed its budget: when to send it, and its text. Pure, as notice.py is."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import date

from gateway.money import format_usd, show_usd, usd
from gateway.notices.notice import FORECAST, BudgetSpent, Document, Mark, budget_fields, in_words, what_then, whose

LIKELY = 0.8
"""Share of simulated months over budget: whoever gets a false alarm early on will not read the next one."""
LEAST_MONTH_DAYS = 5
"""Complete days of the month itself: where a month's last days are expensive, its 1st looked like a new level, and four
months of five that kept their budget were told that they would not. See docs/decisions/damped-forecasts.md."""
LEAST_LEARNED_DAYS = 10
"""Complete days. With fewer the forecast is just their mean, which one unusual day dominates."""


@dataclass(frozen=True, slots=True)
class Foreseen:
    """Where a budget's month is heading, of which `month_days` are complete. `probability` is the share of simulated
    months over budget; the amounts are the 5 %, 50 % and 95 % quantiles of the month's total, `early` and `late` the
    days by which 5 % and 95 % of the months have spent it, None if fewer do."""

    spent: BudgetSpent
    learned_days: int
    month_days: int
    probability: float
    low_pico_usd: int
    middle_pico_usd: int
    high_pico_usd: int
    runs_out: date
    early: date | None
    late: date | None


def forecast_due(foreseen: Foreseen, told: Collection[Mark]) -> Mark | None:
    """Sent once, if it is likely and enough is known. Budgets already spent are covered by the share notices."""
    spent, mark = foreseen.spent, foreseen.spent.mark(FORECAST)
    is_ahead = spent.spent_pico_usd < spent.amount_pico_usd
    is_known = foreseen.learned_days >= LEAST_LEARNED_DAYS and foreseen.month_days >= LEAST_MONTH_DAYS
    is_likely = foreseen.probability >= LIKELY
    return mark if is_ahead and is_known and is_likely and mark not in told else None


def forecast_document(foreseen: Foreseen, *, page: str | None) -> Document:
    """In the format of notice.document; days are UTC."""
    figures: Document = {
        "probability": round(foreseen.probability, 3),
        "forecast_low_usd": format_usd(foreseen.low_pico_usd),
        "forecast_usd": format_usd(foreseen.middle_pico_usd),
        "forecast_high_usd": format_usd(foreseen.high_pico_usd),
        "runs_out": foreseen.runs_out.isoformat(),
        "runs_out_early": None if foreseen.early is None else foreseen.early.isoformat(),
        "runs_out_late": None if foreseen.late is None else foreseen.late.isoformat(),
        "learned_days": foreseen.learned_days,
    }
    event: Document = {"event": "budget_forecast_exceeded", "is_test": False}
    return event | budget_fields(foreseen.spent, page) | figures | in_words(_sentence(foreseen, page))


def _sentence(foreseen: Foreseen, page: str | None) -> str:
    spent = foreseen.spent
    pico_usd = (foreseen.middle_pico_usd, foreseen.low_pico_usd, foreseen.high_pico_usd, spent.amount_pico_usd)
    middle, low, high, amount = (show_usd(usd(one)) for one in pico_usd)
    chance = "more than 99" if foreseen.probability > 0.99 else f"{foreseen.probability * 100:.0f}"
    return (
        f"The budget of {whose(spent)} will probably be spent before this month ends, on about "
        f"{_written(foreseen.runs_out)}{_between(foreseen)}: the month is heading for {middle} ({low} to {high}), "
        f"its budget is {amount}, and {chance} % of simulated months pass it. {show_usd(usd(spent.spent_pico_usd))} is "
        f"spent so far. {what_then(spent, page)}"
    )


def _between(foreseen: Foreseen) -> str:
    early, late = foreseen.early or foreseen.runs_out, foreseen.late
    if late is None:
        return f" ({_written(early)} at the earliest, or not at all)"
    return "" if early == late else f" ({_written(early)} to {_written(late)})"


def _written(day: date) -> str:
    return f"{day.day} {day:%b}"
