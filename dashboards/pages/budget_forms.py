"""The forms that set and remove monthly budgets."""

from collections.abc import Awaitable, Collection, Sequence
from typing import Any

from nicegui import ui

from dashboards.forms.kept import KeptForm
from dashboards.forms.marked_fields import MarkedFields
from dashboards.forms.one_press import on_press
from dashboards.forms.problem import WrongField, form_problem, form_word
from dashboards.forms.typed_amounts import typed_usd
from dashboards.frame import View, attempt, confirm, grid, html

BUDGETS = "/admin/v1/budgets"
SCOPES = {"all": "Everything", "team": "A team", "project": "A project"}


def budget_name(one: dict[str, Any]) -> str:
    return "Everything" if one["scope"] == "all" else f"{one['scope'].capitalize()} {one['name']}"


async def team_names(view: View) -> list[str]:
    """The teams of this month's spend, offered while a name is typed."""
    costs = await view.gateway.get("/admin/v1/reports/costs", by="team", costs_alone=True)
    return sorted(row["group"]["team"] for row in costs["rows"] if row["group"]["team"])


class BudgetForms:
    """Any budget can be set, and those `shown` removed; `stopping` are all that refuse requests, shown or not. A change
    leads to the address `afterwards`."""

    def __init__(
        self,
        view: View,
        shown: Sequence[dict[str, Any]],
        stopping: Collection[tuple[str, str]],
        teams: list[str],
        afterwards: str,
    ) -> None:
        self._view = view
        self._shown = {f"{one['scope']} {one['name']}": one for one in shown}
        self._stopping = stopping
        self._afterwards = afterwards
        problem = html("")
        with grid("be-filters"):
            self._scope = ui.select(SCOPES, value="team", label="Budget of")
            self._scope.props("dense outlined").style("min-width: 9rem")
            self._name = ui.input("Name", autocomplete=teams).props("dense outlined maxlength=64")
            self._amount = ui.input("Dollars a month").props("dense outlined maxlength=24 inputmode=decimal")
            self._stops = ui.checkbox("Refuse requests when it is spent").props("dense")
            button = ui.button("Set budget").props("no-caps unelevated")
        with grid("be-filters"):
            names = {key: budget_name(one) for key, one in self._shown.items()}
            self._gone = ui.select(names, label="Budget to remove", with_input=True).props("dense outlined")
            self._gone.style("min-width: 15rem")
            remove = ui.button("Remove", on_click=self._ask_first).props("no-caps outline color=negative")
        self._name.bind_visibility_from(self._scope, "value", lambda value: value != "all")
        for element in (self._gone, remove):
            element.set_visibility(bool(shown))
        for element in (self._scope, self._name):
            element.on_value_change(self._keep_stopping)
        fields = {"scope": self._scope, "name": self._name, "amount": self._amount, "stops": self._stops}
        self._marked = MarkedFields({**fields, "gone": self._gone}, problem)
        KeptForm("budget", fields, lambda said: self._marked.say(form_word(said)))
        self._amount.on("keydown.enter", on_press(button, self._set))

    @property
    def _whose(self) -> tuple[str, str]:
        """The scope and the name in the fields."""
        return self._scope.value, "" if self._scope.value == "all" else (self._name.value or "").strip()

    def _keep_stopping(self) -> None:
        """A new amount for a budget that refuses requests must not make it one that only warns."""
        if self._whose in self._stopping:
            self._stops.set_value(True)

    async def _set(self) -> None:
        try:
            usd = typed_usd(self._amount.value, "amount")
        except ValueError as error:
            self._marked.say(form_problem(error), error)
            return
        scope, name = self._whose
        budget = {"scope": scope, "name": name, "month_usd": usd, "stops": bool(self._stops.value)}
        await self._attempt(self._view.gateway.put(BUDGETS, budget))

    def _ask_first(self) -> None:
        if self._gone.value is None:
            wrong = WrongField("gone", "Choose the budget to remove.")
            self._marked.say(form_problem(wrong), wrong)
            return
        one = self._shown[self._gone.value]
        then = "Requests are no longer refused because of it" if one["stops"] else "There are no more warnings about it"
        asked = f"Remove the budget {budget_name(one)!r}? {then}; what was spent stays in the books."
        confirm(asked, "Remove it", self._remove)

    async def _remove(self) -> None:
        one = self._shown[self._gone.value]
        await self._attempt(self._view.gateway.delete(BUDGETS, scope=one["scope"], name=one["name"]))

    async def _attempt(self, change: Awaitable[Any]) -> None:
        await attempt(self._view, change, self._marked, afterwards=self._afterwards)
