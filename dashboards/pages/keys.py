"""API keys: one for each app or person, with a team, so that cost has an owner, and with limits that hold."""

from dataclasses import dataclass
from html import escape
from typing import Any

from nicegui import ui

from dashboards import display, markup
from dashboards.frame import View, grid, html, panel
from dashboards.gateway_client import GatewayRefused, GatewayUnreachable
from dashboards.limit_words import WINDOWS, limits_text
from dashboards.markup import Cell, Column

KEYS = "/admin/v1/keys"
ROLES = {
    "app": "app: calls models",
    "viewer": "viewer: reads reports",
    "finance": "finance: reads every request and the audit log, sets monthly budgets",
    "editor": "editor: changes rules",
    "owner": "owner: everything",
}


async def build(view: View) -> None:
    """Create one, list all, change what one may use."""
    found = await view.gateway.get(KEYS)
    may_write = view.session.may("keys.write")
    if may_write:
        with panel("New key", "The key is shown once, here. Only a hash of it is stored. Empty limits are no limits."):
            _creator(view)
    with panel("Keys", "Times in UTC."):
        html(_table(found["keys"]))
    if may_write:
        with panel("Change a key", "Limits hold in every worker within a second; a revoked key stops as soon."):
            _changer(view, found["keys"])


@dataclass(slots=True)
class LimitFields:
    """What a key may use, as four fields. What they do not show (quotas of tiers) is kept as it was."""

    budget: ui.input
    window: ui.select
    requests: ui.number
    tokens: ui.number
    others: dict[str, Any]

    @classmethod
    def build(cls) -> "LimitFields":
        return cls(
            ui.input("Budget, $").props("dense outlined maxlength=24 inputmode=decimal").classes("be-short"),
            ui.select(WINDOWS, value="month", label="Budget is for").props("dense outlined").classes("be-short"),
            ui.number("Requests a minute", min=1, precision=0).props("dense outlined").classes("be-short"),
            ui.number("Input tokens a minute", min=1, precision=0).props("dense outlined").classes("be-short"),
            {},
        )

    def show(self, limits: dict[str, Any]) -> None:
        self.budget.set_value(limits.get("budget_usd") or "")
        self.window.set_value(limits.get("budget_window", "month"))
        self.requests.set_value(limits.get("requests_per_minute"))
        self.tokens.set_value(limits.get("tokens_per_minute"))
        shown = ("budget_usd", "budget_window", "requests_per_minute", "tokens_per_minute")
        self.others = {name: value for name, value in limits.items() if name not in shown}

    def limits(self) -> dict[str, Any]:
        found = dict(self.others)
        if budget := (self.budget.value or "").replace("$", "").replace(",", "").strip():
            found |= {"budget_usd": budget, "budget_window": self.window.value}
        for name, value in (("requests_per_minute", self.requests.value), ("tokens_per_minute", self.tokens.value)):
            if value is not None:
                found[name] = int(value)
        return found


def _creator(view: View) -> None:
    with grid("be-filters"):
        name = ui.input("Name").props("dense outlined maxlength=64")
        role = ui.select(ROLES, value="app", label="Role").props("dense outlined").style("min-width: 17rem")
        team = ui.input("Team").props("dense outlined maxlength=64")
        project = ui.input("Project").props("dense outlined maxlength=64")
        limits = LimitFields.build()
        button = ui.button("Create").props("no-caps unelevated")
    result = html("")

    async def create() -> None:
        body = {
            "name": name.value,
            "role": role.value,
            "team": team.value or None,
            "project": project.value or None,
            "limits": limits.limits(),
        }
        try:
            made = await view.gateway.post(KEYS, body)
        except (GatewayRefused, GatewayUnreachable) as error:
            result.set_content(f'<p class="be-problem" role="alert">{escape(str(error))}</p>')
            return
        result.set_content(
            f'<p class="be-fine" role="status">{escape(made["name"])} may start now. Copy the key: it is not shown '
            f'again.</p><code class="be-secret">{escape(made["key"])}</code>'
        )

    button.on_click(create)


def _table(keys: list[dict[str, Any]]) -> str:
    rows = [
        [
            Cell(one["name"], tone="muted" if one["revoked_at_us"] else "", title=one["id"]),
            one["role"],
            one["team"] or "none",
            one["project"] or "none",
            ", ".join(one["tags"]) or display.UNKNOWN,
            "all" if one["allowed_models"] is None else ", ".join(one["allowed_models"]) or "none",
            limits_text(one["limits"]),
            Cell(
                display.moment(one["created_at_us"])[:10], tone="be-nowrap", title=display.moment(one["created_at_us"])
            ),
            _state(one),
        ]
        for one in keys
    ]
    names = ("Name", "Role", "Team", "Project", "Tags", "Models", "Limits", "Created", "State")
    return markup.table([Column(name) for name in names], rows, caption="Keys")


def _state(one: dict[str, Any]) -> Cell:
    if one["revoked_at_us"]:
        return Cell(f"revoked {display.moment(one['revoked_at_us'])[:10]}", tone="bad")
    if one["expires_at_us"]:
        return Cell(f"until {display.moment(one['expires_at_us'])[:10]}")
    return Cell("active", tone="good")


def _changer(view: View, keys: list[dict[str, Any]]) -> None:
    working = {one["id"]: one for one in keys if not one["revoked_at_us"]}
    labels = {key: f"{one['name']} ({one['role']})" for key, one in working.items()}
    with grid("be-filters"):
        chosen = ui.select(labels, label="Key").props("dense outlined").style("min-width: 16rem")
        limits = LimitFields.build()
        save = ui.button("Save limits").props("no-caps unelevated")
        revoke = ui.button("Revoke").props("no-caps outline color=negative")
    problem = html("")
    chosen.on_value_change(lambda event: limits.show(working[event.value]["limits"]))

    async def attempt(change: Any) -> None:
        try:
            await change
        except (GatewayRefused, GatewayUnreachable) as error:
            problem.set_content(f'<p class="be-problem" role="alert">{escape(str(error))}</p>')
            return
        ui.navigate.to("/keys")

    async def save_limits() -> None:
        if chosen.value is not None:
            await attempt(view.gateway.put(f"{KEYS}/{chosen.value}/limits", {"limits": limits.limits()}))

    async def revoke_key() -> None:
        await attempt(view.gateway.post(f"{KEYS}/{chosen.value}/revoke"))

    def ask_first() -> None:
        if chosen.value is None:
            return
        with ui.dialog() as dialog, ui.card():
            html(
                f"<p>Revoke the key <strong>{escape(working[chosen.value]['name'])}</strong>? Whoever uses it is "
                "refused within a second, and it cannot be used again.</p>"
            )
            with grid("be-actions"):
                ui.button("Keep it", on_click=dialog.close).props("no-caps outline")
                ui.button("Revoke for good", on_click=revoke_key).props("no-caps unelevated color=negative")
        dialog.open()

    save.on_click(save_limits)
    revoke.on_click(ask_first)
