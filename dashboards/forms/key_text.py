"""A key's tags, last day and quotas as text of form fields, and back. Pure; knows no page.

A key still works on its last day: it expires at the midnight (UTC) after it.
"""

from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any

from dashboards.forms.problem import WrongField

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAY_US = 86_400_000_000
MICROSECOND = timedelta(microseconds=1)
LAST_US = (datetime.max.replace(tzinfo=UTC) - EPOCH) // MICROSECOND
"""The end of the last date there is. Audit records of earlier versions may have later expiries."""


def words(text: str | None) -> list[str]:
    """`a, b` as a list, each once."""
    return list(dict.fromkeys(word.strip() for word in (text or "").split(",") if word.strip()))


def last_day(expires_at_us: int | None) -> str:
    """An ISO date, or empty if the key does not expire."""
    return "" if expires_at_us is None else (EPOCH + (min(expires_at_us, LAST_US) - 1) * MICROSECOND).date().isoformat()


def expires_at_us(day: str | None) -> int | None:
    """The inverse; None for an empty field. Raises WrongField."""
    if not day:
        return None
    try:
        last = date.fromisoformat(day)
    except ValueError as error:
        raise WrongField("last_day", f"{day!r} is not a day such as 2026-12-31.") from error
    return min((datetime(last.year, last.month, last.day, tzinfo=UTC) - EPOCH) // MICROSECOND + DAY_US, LAST_US)


def require_to_come(expires_at_us: int | None, now_us: int) -> None:
    """Raises WrongField if the key would have expired already."""
    if expires_at_us is not None and expires_at_us <= now_us:
        said = f"The last day {last_day(expires_at_us)} is past. To end a key now, revoke it."
        raise WrongField("last_day", said)


def quotas_text(quotas: Mapping[str, Mapping[str, Any]]) -> str:
    """`premium=100/day`, as the command line takes it."""
    return ", ".join(f"{tier}={quota['requests']}/{quota.get('window', 'day')}" for tier, quota in quotas.items())


def quotas(text: str | None) -> dict[str, dict[str, Any]]:
    """The inverse. Raises WrongField."""
    found: dict[str, dict[str, Any]] = {}
    for word in words(text):
        tier, _, amount = word.partition("=")
        requests, _, window = amount.partition("/")
        if not (tier and requests.isdecimal() and window in ("day", "month", "total")):
            raise WrongField("quotas", f"{word!r} is not a quota such as premium=100/day (day, month or total).")
        found[tier.strip()] = {"requests": int(requests), "window": window}
    return found


def changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Only the fields that differ, so that what somebody else changes meanwhile is kept."""
    return {name: value for name, value in after.items() if value != before[name]}


def merged(before: Mapping[str, Any], after: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """`now`, with the changes from `before` to `after` applied. Limits are stored as a whole; this keeps one that
    somebody else set meanwhile."""
    kept = {name: value for name, value in now.items() if name in after or name not in before}
    return kept | {name: value for name, value in after.items() if name not in before or value != before[name]}
