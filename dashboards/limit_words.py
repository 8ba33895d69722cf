"""A key's limits in words. Pure."""

from typing import Any

from dashboards import display
from dashboards.markup import counted

WINDOWS = {"day": "a day", "month": "a month", "total": "in all"}


def limits_text(limits: dict[str, Any]) -> str:
    """`$25.00 a month, 60 requests / min`."""
    parts: list[str] = []
    if (budget := limits.get("budget_usd")) is not None:
        parts.append(f"{display.exact_dollars(budget)} {WINDOWS[limits.get('budget_window', 'month')]}")
    if (each := limits.get("end_user_budget_usd")) is not None:
        window = WINDOWS[limits.get("end_user_budget_window", "month")]
        parts.append(f"{display.exact_dollars(each)} {window} for each end user")
    for name, what in (("requests_per_minute", "request"), ("tokens_per_minute", "token")):
        if (value := limits.get(name)) is not None:
            parts.append(f"{counted(value, what)} / min")
    if (most := limits.get("max_parallel_requests")) is not None:
        parts.append(f"{most:,} at once")
    for tier, quota in limits.get("tier_quotas", {}).items():
        parts.append(f"{counted(quota['requests'], f'{tier} request')} {WINDOWS[quota.get('window', 'day')]}")
    return ", ".join(parts) or "none"
