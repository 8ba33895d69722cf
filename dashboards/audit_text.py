"""What an audit record changed, in a few words. Pure."""

import json
from typing import Any

from dashboards import display
from dashboards.forms.key_text import last_day
from dashboards.limit_words import limits_text


def change_text(action: str, detail: str) -> str:
    """From the record's detail, whose format depends on the action; of a rules diff, the number of lines."""
    if detail.startswith("---"):
        return _lines(detail)
    try:
        found = json.loads(detail)
    except ValueError:
        return detail or display.UNKNOWN
    if action == "budget.set":
        return _budget(found)
    if action == "key.change":
        return "; ".join(_key(name, found["before"][name], found["after"][name]) for name in found["after"])
    if action == "key.rotate":
        until = f"works until {display.moment(found['old_secrets_end_at_us'])}" if found["overlap_seconds"] else "ended"
        return f"new secret; the old one {until}"
    if action == "key.create":
        limits = json.loads(found["limits"])
        whose = [found["role"], *(f"{name} {found[name]}" for name in ("team", "project") if found[name])]
        return ", ".join([*whose, *([limits_text(limits)] if limits else [])])
    return display.UNKNOWN


def _budget(found: dict[str, Any]) -> str:
    after = display.exact_dollars(found["after_usd"])
    amount = after if found["before_usd"] is None else f"{display.exact_dollars(found['before_usd'])} → {after}"
    return f"{amount} a month, {'refuses' if found.get('stops') else 'warns'} when spent"


def _key(name: str, before: Any, after: Any) -> str:
    """One field of a key, before and after."""
    if name == "limits":
        return f"{limits_text(before)} → {limits_text(after)}"
    label = {"allowed_models": "models", "expires_at_us": "last day"}.get(name, name)
    return f"{label} {_value(name, before)} → {_value(name, after)}"


def _value(name: str, value: Any) -> str:
    if name == "expires_at_us":
        return "none" if value is None else display.day(last_day(value))
    if value is None:
        return "all" if name == "allowed_models" else "none"
    return ", ".join(value) or "none" if isinstance(value, list) else str(value)


def _lines(diff: str) -> str:
    body = [line[:1] for line in diff.splitlines()[2:]]
    return f"lines: +{body.count('+')} −{body.count('-')}"
