"""Writes a draft as the texts of its files. Pure."""

from collections.abc import Mapping
from typing import Any, Final

import yaml

from gateway.from_litellm.draft import Draft

SETTINGS: Final = """\
# Made from LiteLLM's {source}. Keys are in the environment; what else may stand here: docs/backends.md.
# LiteLLM has no engine, so the bundled one is off: `is_enabled: true` starts it.
"""
RULES: Final = """\
# Made from LiteLLM's {source}; see docs/rules.md. Requests for `auto` meet the last rule. One that names a model meets
# the rules for that name, or else is answered by that model.
"""
PRICES: Final = "# US dollars a million tokens, as LiteLLM's {source} has them.\n"


def files_of(made: Draft, source: str) -> Mapping[str, str]:
    """Name -> text of breakeven.yaml, rules.yaml and, where LiteLLM's file gave prices, prices.yaml."""
    files = {
        "breakeven.yaml": SETTINGS.format(source=source) + _text(made.settings),
        "rules.yaml": RULES.format(source=source) + _rules(made),
    }
    if made.overrides:
        files["prices.yaml"] = PRICES.format(source=source) + _text({"overrides": made.overrides})
    return files


def _rules(made: Draft) -> str:
    lines = _text(made.rules).splitlines()
    for place, line in enumerate(lines):
        if any(line.startswith(f"  {name}:") for name in made.unsure):
            lines[place] = f"{line}  # its context_window is a guess"
    return "\n".join(lines) + "\n"


def _text(value: Mapping[str, Any]) -> str:
    return "\n".join(_block(name, one) for name, one in value.items()) + "\n"


def _block(name: str, value: Any) -> str:
    """A section with one line for each member, however nested that is."""
    if isinstance(value, dict) and value:
        return f"{name}:\n" + "\n".join(f"  {_flow({key: one})[1:-1]}" for key, one in value.items())
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return f"{name}:\n" + "\n".join(f"  - {_flow(one)}" for one in value)
    return _flow({name: value})[1:-1]


def _flow(value: Any) -> str:
    text = yaml.safe_dump(value, sort_keys=False, width=10**6, allow_unicode=True, default_flow_style=True)
    return text.removesuffix("\n")
