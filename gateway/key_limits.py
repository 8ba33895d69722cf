"""The stored limits of all keys as admission takes them; what cannot be read closes its key."""

import logging
from collections.abc import Mapping
from typing import Any

from gateway.limits import Limits, SharedLimits, parse_limits

log = logging.getLogger(__name__)


def limits_of_keys(stored: Mapping[str, Mapping[str, Any]], shared: SharedLimits) -> dict[str, Limits]:
    """By key id, of those that have any."""
    return {key: _limits(key, one, shared) for key, one in stored.items() if one}


def _limits(key_id: str, stored: Mapping[str, Any], shared: SharedLimits) -> Limits:
    """Limits that cannot be read stop the key's spending rather than free it."""
    try:
        limits = parse_limits(stored)
        if unknown := sorted(limits.tier_quotas.keys() - shared.tiers.keys()):
            raise ValueError(f"breakeven.yaml has no tier {', '.join(unknown)}")
    except (ValueError, ArithmeticError) as error:
        log.error("the limits of key %s cannot be read (%s); it may spend nothing", key_id, error)
        return Limits(budget_usd="0")
    return limits
