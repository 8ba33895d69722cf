"""Stored limits and budgets in admission's form; a key with unreadable limits may spend nothing."""

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from gateway.limits.values import BudgetScope, Limits, SharedLimits, parse_limits
from gateway.stores import Budget

log = logging.getLogger(__name__)


def limits_of_keys(stored: Mapping[str, Mapping[str, Any]], shared: SharedLimits) -> dict[str, Limits]:
    """By key id, for keys that have any."""
    return {key: _limits(key, one, shared) for key, one in stored.items() if one}


def strict_budgets(budgets: Iterable[Budget]) -> dict[tuple[BudgetScope, str], int]:
    """Budgets that stop, in pico-USD per month."""
    return {(one.scope, one.name): one.month_pico_usd for one in budgets if one.stops}


def _limits(key_id: str, stored: Mapping[str, Any], shared: SharedLimits) -> Limits:
    """Limits that cannot be read stop the key's spending rather than free it."""
    try:
        limits = parse_limits(stored)
        if unknown := sorted(limits.tier_quotas.keys() - shared.tiers.keys()):
            raise ValueError(f"breakeven.yaml has no tier {', '.join(unknown)}")
    except ValueError as error:
        log.error("the limits of key %s cannot be read (%s); it may spend nothing", key_id, error)
        return Limits(budget_usd="0")
    return limits
