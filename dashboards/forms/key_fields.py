"""The form fields of a key: what it is, who pays for it, and what it may use. Filled from a key and read as one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from nicegui import ui
from nicegui.elements.mixins.value_element import ValueElement

from dashboards.forms import key_text
from dashboards.forms.typed_amounts import typed_usd
from dashboards.limit_words import WINDOWS

TEXT = "dense outlined maxlength=64"
QUOTA = "How many requests a day, a month or in total the models of a tier may answer; breakeven.yaml names the tiers."

END_USER = "The most that each customer of an app may cost; every request of the key then has to name one."
AT_ONCE = "How many requests may be in progress at the same time; streams count as long as they are open."


@dataclass(frozen=True, slots=True)
class KeyFields:
    """Everything about a key that can be changed. Empty fields mean none, all models, no expiry, no limit."""

    name: ui.input
    team: ui.input
    project: ui.input
    tags: ui.input
    models: ui.select
    last_day: ui.input
    budget: ui.input
    window: ui.select
    end_user_budget: ui.input
    end_user_window: ui.select
    requests: ui.number
    tokens: ui.number
    at_once: ui.number
    quotas: ui.input

    @classmethod
    def build(cls, models: Sequence[str]) -> "KeyFields":
        return cls(
            ui.input("Name").props(TEXT),
            ui.input("Team").props(TEXT),
            ui.input("Project").props(TEXT),
            ui.input("Tags, comma-separated").props("dense outlined maxlength=1100"),
            ui.select(list(models), label="Models; empty is all", value=[], multiple=True).props(
                "dense outlined use-chips"
            ),
            ui.input("Last day, UTC").props("dense outlined type=date stack-label"),
            ui.input("Budget, $").props("dense outlined maxlength=24 inputmode=decimal"),
            ui.select(WINDOWS, value="month", label="Budget is for").props("dense outlined"),
            ui.input("Each end user's budget, $")
            .props("dense outlined maxlength=24 inputmode=decimal")
            .tooltip(END_USER),
            ui.select(
                {name: WINDOWS[name] for name in ("day", "month")}, value="month", label="That budget is for"
            ).props("dense outlined"),
            ui.number("Requests a minute", min=1, precision=0).props("dense outlined"),
            ui.number("Input tokens a minute", min=1, precision=0).props("dense outlined"),
            ui.number("Requests at once", min=1, precision=0).props("dense outlined").tooltip(AT_ONCE),
            ui.input("Tier quotas", placeholder="premium=100/day")
            .props("dense outlined maxlength=400 stack-label")
            .tooltip(QUOTA),
        )

    def by_name(self) -> dict[str, ValueElement[Any]]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def show(self, key: Mapping[str, Any]) -> None:
        """Fill the fields from a key as the gateway lists it."""
        self.name.set_value(key["name"])
        self.team.set_value(key["team"] or "")
        self.project.set_value(key["project"] or "")
        self.tags.set_value(", ".join(key["tags"]))
        allowed = key["allowed_models"] or []
        self.models.set_options(sorted({*self.models.options, *allowed}), value=allowed)
        self.last_day.set_value(key_text.last_day(key["expires_at_us"]))
        limits = key["limits"]
        self.budget.set_value(limits.get("budget_usd") or "")
        self.window.set_value(limits.get("budget_window", "month"))
        self.end_user_budget.set_value(limits.get("end_user_budget_usd") or "")
        self.end_user_window.set_value(limits.get("end_user_budget_window", "month"))
        self.requests.set_value(limits.get("requests_per_minute"))
        self.tokens.set_value(limits.get("tokens_per_minute"))
        self.at_once.set_value(limits.get("max_parallel_requests"))
        self.quotas.set_value(key_text.quotas_text(limits.get("tier_quotas", {})))

    def read(self) -> dict[str, Any]:
        """The key in the fields. Raises WrongField."""
        return {
            "name": (self.name.value or "").strip(),
            "team": (self.team.value or "").strip() or None,
            "project": (self.project.value or "").strip() or None,
            "tags": key_text.words(self.tags.value),
            "allowed_models": sorted(self.models.value) or None,
            "expires_at_us": key_text.expires_at_us(self.last_day.value),
            "limits": self._limits(),
        }

    def _limits(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if budget := typed_usd(self.budget.value, "budget"):
            found |= {"budget_usd": budget, "budget_window": self.window.value}
        if each := typed_usd(self.end_user_budget.value, "end_user_budget"):
            found |= {"end_user_budget_usd": each, "end_user_budget_window": self.end_user_window.value}
        numbers = {
            "requests_per_minute": self.requests.value,
            "tokens_per_minute": self.tokens.value,
            "max_parallel_requests": self.at_once.value,
        }
        for name, value in numbers.items():
            if value is not None:
                found[name] = int(value)
        if quotas := key_text.quotas(self.quotas.value):
            found["tier_quotas"] = quotas
        return found
