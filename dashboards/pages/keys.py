"""API keys: one for each app or person, with a team, so that cost has an owner."""

from html import escape
from typing import Any

from nicegui import ui

from dashboards import display, markup
from dashboards.frame import View, grid, html, panel
from dashboards.gateway_client import GatewayRefused, GatewayUnreachable
from dashboards.markup import Cell, Column

KEYS = "/admin/v1/keys"
ROLES = {
    "app": "app: calls models",
    "viewer": "viewer: reads reports",
    "finance": "finance: reads every request and the audit log",
    "editor": "editor: changes rules",
    "owner": "owner: everything",
}


async def build(view: View) -> None:
    """Create one, list all."""
    found = await view.gateway.get(KEYS)
    may_write = view.session.may("keys.write")
    if may_write:
        with panel("New key", "The key is shown once, here. Only a hash of it is stored."):
            _creator(view)
    with panel("Keys", "Times in UTC."):
        html(_table(found["keys"]))
        if may_write:
            _revoker(view, found["keys"])


def _creator(view: View) -> None:
    with grid("be-filters"):
        name = ui.input("Name").props("dense outlined maxlength=64")
        role = ui.select(ROLES, value="app", label="Role").props("dense outlined").style("min-width: 17rem")
        team = ui.input("Team").props("dense outlined maxlength=64")
        project = ui.input("Project").props("dense outlined maxlength=64")
        button = ui.button("Create").props("no-caps unelevated")
    result = html("")

    async def create() -> None:
        body = {"name": name.value, "role": role.value, "team": team.value or None, "project": project.value or None}
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
            Cell(one["name"], tone="muted" if one["revoked_at_us"] else ""),
            one["role"],
            one["team"] or "none",
            one["project"] or "none",
            ", ".join(one["tags"]) or display.UNKNOWN,
            "all" if one["allowed_models"] is None else ", ".join(one["allowed_models"]) or "none",
            display.moment(one["created_at_us"])[:-4],
            _state(one),
            Cell(one["id"], is_code=True),
        ]
        for one in keys
    ]
    names = ("Name", "Role", "Team", "Project", "Tags", "Models", "Created", "State", "Id")
    return markup.table([Column(name) for name in names], rows, caption="Keys")


def _state(one: dict[str, Any]) -> Cell:
    if one["revoked_at_us"]:
        return Cell(f"revoked {display.moment(one['revoked_at_us'])[:10]}", tone="bad")
    if one["expires_at_us"]:
        return Cell(f"until {display.moment(one['expires_at_us'])[:10]}")
    return Cell("active", tone="good")


def _revoker(view: View, keys: list[dict[str, Any]]) -> None:
    working = {one["id"]: f"{one['name']} ({one['role']})" for one in keys if not one["revoked_at_us"]}
    with grid("be-actions"):
        chosen = ui.select(working, label="Revoke").props("dense outlined").style("min-width: 16rem")
        button = ui.button("Revoke").props("no-caps outline color=negative")

    async def revoke() -> None:
        if chosen.value is None:
            return
        try:
            await view.gateway.post(f"{KEYS}/{chosen.value}/revoke")
        except (GatewayRefused, GatewayUnreachable) as error:
            ui.notify(str(error), type="negative", multi_line=True)
            return
        ui.navigate.to("/keys")

    button.on_click(revoke)
