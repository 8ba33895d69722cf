"""Describes a key's replaced secrets that still work. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from dashboards import display

OldSecrets = Sequence[Mapping[str, Any]]
"""As `/admin/v1/keys` lists them; at least one."""


def old_secrets_text(old: OldSecrets) -> str:
    """Until when they work and whether they are still used, which matters before their overlap is ended."""
    ends = display.moment(max(one["ends_at_us"] for one in old))
    used = [one["last_used_at_us"] for one in old if one["last_used_at_us"] is not None]
    last = f"last used {display.moment(max(used))}" if used else "not used since the new one was made"
    which = "the old secret works" if len(old) == 1 else f"{len(old)} old secrets work, the last"
    return f"{which} until {ends}, {last}"


def is_used(old: OldSecrets) -> bool:
    """Whether any was used since it was replaced."""
    return any(one["last_used_at_us"] is not None for one in old)
