"""Numbers and times as people read them, always with their unit. Pure; dollars stay exact decimals to the end."""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any

UNKNOWN = "–"
NO_NAME = "(none)"
"""Of whatever has no team, project, key or tag: none of these can be called so."""
NO_PRICE = "unknown"
MILLION = 1_000_000
LARGEST_CHANGE = 10
MUCH_MORE = f"over {LARGEST_CHANGE} ×"
AMOUNT = re.compile(r"-?\d+(\.\d+)?")


def dollars(text: str | Decimal | None, *, places: int | None = None) -> str:
    """`$1,234.56`. Below a dollar, enough decimal places for three digits; only zero is shown as $0."""
    if text is None:
        return UNKNOWN
    value = Decimal(text)
    if places is None:
        places = 2 if abs(value) >= Decimal("0.9995") or not value else min(12, 2 - _to_three_digits(value).adjusted())
    rounded = value.quantize(Decimal(1).scaleb(-places), rounding=ROUND_HALF_EVEN)
    return f"{'−' if rounded < 0 else ''}${abs(rounded):,f}"


def dollar_column(texts: Sequence[str]) -> list[str]:
    """Amounts of a column, all with the same number of decimal places: two if all are whole cents, such as budgets;
    otherwise enough for two digits of the smallest, but for no more than six of the largest.

    An amount that would round to zero is written `<$0.01`; text that is no amount stays unchanged.
    """
    sizes = [abs(Decimal(text)) for text in texts if _is_amount(text) and Decimal(text)]
    places = min(1 - min(sizes).adjusted(), 5 - max(sizes).adjusted(), 12) if _most_places(sizes) > 2 else 2
    return [_of_column(text, max(places, 2)) if _is_amount(text) else text for text in texts]


def exact_dollar_column(texts: Sequence[str]) -> list[str]:
    """Amounts of a column with every digit the ledger has."""
    places = _most_places([Decimal(text) for text in texts if _is_amount(text)])
    return [dollars(text, places=max(places, 2)) if _is_amount(text) else text for text in texts]


def dollar_range(low: str, high: str) -> str:
    """`$0.24 – $20.30`: with as many decimal places as the higher amount has."""
    most = dollars(high)
    return f"{_of_column(low, len(most.partition('.')[2]))} – {most}"


def dollar_ranges(ends: Sequence[tuple[str, str]]) -> list[str]:
    """Ranges of a column, with the same decimal places; a range whose ends look the same is written as one amount."""
    shown = dollar_column([text for both in ends for text in both])
    return [low if low == high else f"{low} – {high}" for low, high in zip(shown[::2], shown[1::2], strict=True)]


def rate(text: str | Decimal | None) -> str:
    """A price per hour, without trailing zeros beyond the cents: `$0.02`, `$0.0333`, `$2.50`."""
    shown = dollars(text)
    whole, point, fraction = shown.partition(".")
    return f"{whole}.{fraction.rstrip('0').ljust(2, '0')}" if point else shown


def _most_places(values: Sequence[Decimal]) -> int:
    return max((-int(value.normalize().as_tuple().exponent) for value in values), default=0)


def _of_column(text: str, places: int) -> str:
    value, least = Decimal(text), Decimal(1).scaleb(-places)
    if not value or value.quantize(least, rounding=ROUND_HALF_EVEN):
        return dollars(value, places=places)
    return f"{'−' if value < 0 else ''}<{dollars(least, places=places)}"


def _is_amount(text: str) -> bool:
    return AMOUNT.fullmatch(text) is not None


def signed_dollars(text: str | Decimal) -> str:
    """`+$1.20`, `−$1.20`, `$0.00`: a change."""
    return f"{'+' if Decimal(text) > 0 else ''}{dollars(text)}"


def cost(row: Mapping[str, Any]) -> str:
    """The cost of a report's group, for a column. If none of its requests has a price, it is unknown, not $0."""
    is_unknown = row["requests"] and row["unpriced_requests"] == row["requests"] and not Decimal(row["cost_usd"])
    return NO_PRICE if is_unknown else row["cost_usd"]


def spend(row: Mapping[str, Any]) -> str:
    """The same for a sentence."""
    return dollars(known) if _is_amount(known := cost(row)) else known


def exact_dollars(text: str | None) -> str:
    """Every digit the ledger has, without trailing zeros beyond the cents."""
    if text is None:
        return "price unknown"
    value = Decimal(text)
    shown = f"{abs(value):,f}"
    whole, _, fraction = shown.partition(".")
    fraction = fraction.rstrip("0").ljust(2, "0")
    return f"{'−' if value < 0 else ''}${whole}.{fraction}"


def words(name: str) -> str:
    """`end_user` as the label `End user`."""
    return name.capitalize().replace("_", " ")


def count(value: float | None) -> str:
    """`12,345`."""
    return UNKNOWN if value is None else f"{round(value):,}"


def tokens(value: float | None) -> str:
    """`812`, `45.1 k`, `3.20 M`, `1.05 G` tokens."""
    if value is None:
        return UNKNOWN
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= 0.9995 * size:  # 999,999 rounds to 1.00 M
            return f"{_three_digits(value / size)} {unit}"
    return f"{value:,.0f}"


def _to_three_digits(value: Decimal) -> Decimal:
    """Rounded first: a value that rounds up to a power of ten takes one decimal place less (0.0099996 is 0.0100)."""
    return value.quantize(Decimal(1).scaleb(value.adjusted() - 2), rounding=ROUND_HALF_EVEN)


def _three_digits(value: float) -> str:
    """`2.40`, `80.0`, `675`: three digits, so that columns line up."""
    return f"{value:#.3g}".rstrip(".") if abs(value) < 999.5 else f"{value:,.0f}"


def share(value: float | None, *, places: int = 1) -> str:
    """`12.3 %`. Only zero is shown as 0 % and only one as 100 %; what rounds to them is `<0.1 %` or `>99.9 %`."""
    if value is None:
        return UNKNOWN
    shown, least = f"{100 * value:,.{places}f}", 10**-places
    if 0 < value < 1 and float(shown) == 0:
        shown = f"<{least:.{places}f}"
    elif 0 < value < 1 and float(shown) == 100:
        shown = f">{100 - least:.{places}f}"
    return f"{shown} %".replace("-", "−")


def signed_share(value: float) -> str:
    """`+12.3 %`, `−12.3 %`: a change."""
    return f"{100 * value:+,.1f} %".replace("-", "−")


def change(now: str | int, before: str | int) -> str | None:
    """In whole per cent, without a sign if it rounds to zero. None if the earlier value is zero."""
    if not Decimal(before):
        return None
    ratio = Decimal(now) / Decimal(before) - 1
    if ratio >= LARGEST_CHANGE:
        return MUCH_MORE
    percent = round(100 * ratio)
    return f"{percent:+d} %".replace("-", "−") if percent else "0 %"


def seconds(value: float | None) -> str:
    """`0.42 s`, `340 ms`, `3 min`."""
    if value is None:
        return UNKNOWN
    if value >= 120:
        return f"{value / 60:.0f} min"
    if value >= 1:
        return f"{value:.2f} s"
    return f"{value * 1000:.0f} ms"


def bare_seconds(value: float | None) -> str:
    """For a column whose heading says the unit: `0.42`, `12.06`."""
    return UNKNOWN if value is None else f"{value:,.2f}"


def speed(value: float | None) -> str:
    """Tokens per second of one stream."""
    return UNKNOWN if value is None else f"{value:,.1f} tok/s"


def moment(at_us: int | None) -> str:
    """`21 Nov 2026 04:16:31 UTC`."""
    return UNKNOWN if at_us is None else f"{long_moment(at_us)} UTC"


def long_moment(at_us: int) -> str:
    """`21 Nov 2026 04:16:31`, where a heading says that it is UTC."""
    return _at(at_us).strftime("%-d %b %Y %H:%M:%S")


def short_moment(at_us: int) -> str:
    """`21 Nov 04:16:31`."""
    return _at(at_us).strftime("%-d %b %H:%M:%S")


def day_of(at_us: int) -> str:
    """The UTC day of a moment: `21 Nov 2026`."""
    return _at(at_us).strftime("%-d %b %Y")


def day(iso: str) -> str:
    """`21 Nov 2026`."""
    return parse_utc(iso).strftime("%-d %b %Y")


def period(since: str, until: str) -> str:
    """`1 Nov 2026 00:00 – 21 Nov 2026 04:00 UTC`."""
    start, end = (parse_utc(text) for text in (since, until))
    return f"{start.strftime('%-d %b %Y %H:%M')} – {end.strftime('%-d %b %Y %H:%M')} UTC"


def hour(iso: str) -> str:
    """`21 Nov 04:00`."""
    return parse_utc(iso).strftime("%-d %b %H:%M")


def group_time(dimension: str, start: str) -> str:
    """A report's group: `21 Nov 2026 04:00`, `21 Nov 2026`, `Week 47 of 2026`, `November 2026`, `Q4 2026`."""
    if dimension in ("week", "quarter"):
        year, _, number = start.partition("-")
        return f"Week {int(number[1:])} of {year}" if dimension == "week" else f"{number} {year}"
    if dimension == "month":
        return parse_utc(f"{start}-01").strftime("%B %Y")
    return parse_utc(start).strftime("%-d %b %Y %H:%M") if dimension == "hour" else day(start)


def _at(at_us: int) -> datetime:
    return datetime.fromtimestamp(at_us / MILLION, UTC)


def parse_utc(iso: str) -> datetime:
    """A time without a zone is in UTC, not in this machine's zone."""
    moment = datetime.fromisoformat(iso)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
