"""API keys: one for each app or person, with a team that its cost belongs to, and with limits."""

import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from html import escape
from typing import Any
from urllib.parse import urlencode

from nicegui import ui

from dashboards import display, markup
from dashboards.forms import key_text
from dashboards.forms.kept import KeptForm
from dashboards.forms.key_fields import KeyFields
from dashboards.forms.marked_fields import MarkedFields
from dashboards.forms.one_press import on_press
from dashboards.forms.problem import form_word
from dashboards.frame import View, grid, html, panel, refusal
from dashboards.gateway_client import GatewayRefused, GatewayUnreachable
from dashboards.limit_words import limits_text
from dashboards.list_page import LONGEST_FIND, ListPage, page_number, pages_of, query_of, typed_find
from dashboards.markup import Cell, Column
from dashboards.pages.key_changer import CHANGE_NOTE, KEYS, Changer, Chosen, keys_address, why_not_changed
from dashboards.secret_words import is_used, old_secrets_text

ROLES = {
    "app": "app: calls models",
    "lead": "lead: reads what its own team spends, its requests, budgets and keys",
    "viewer": "viewer: reads reports",
    "finance": "finance: reads every request and the audit log, sets monthly budgets",
    "editor": "editor: changes rules",
    "owner": "owner: everything",
}

NONE = Cell(display.NO_NAME, tone="muted")
NOT_USED = Cell("none", tone="muted", title="in 90 days")
TITLES = {
    "Last request": "The last day (UTC) of the newest 90 on which it called a model; reading reports is no request"
}
SHORT_NAME = 10


async def build(view: View) -> None:
    """Create a key, list all, change one."""
    may_write = view.session.may("keys.write")
    models: list[str] = []
    find = typed_find(view.query)

    async def list_again() -> None:
        listing.set_content(_listing(view, await _listed(view, find), find))

    if may_write:
        models = [one["name"] for one in (await view.gateway.get("/admin/v1/models"))["models"]]
        with panel(
            "New key", "The key is shown only once, here: only its hash is stored. An empty limit means no limit."
        ):
            _creator(view, models, list_again)
    keys = await _listed(view, find)
    chosen = await _chosen(view, keys) if may_write else None
    if chosen is not None and (why := why_not_changed(chosen)) is not None:
        html(markup.message("This key cannot be changed", why, tone="warn"))
        chosen = None
    if chosen is not None:
        _change_panel(view, keys, models, chosen)
    change = "Click a name to change its key, or Spend" if may_write else "Click Spend"
    with panel("Keys", f"Times in UTC. {change} to see what it spent this month."):
        listing = html(_listing(view, keys, find))
    if may_write and chosen is None:
        _change_panel(view, keys, models, None)


async def _listed(view: View, find: str) -> ListPage:
    """The page that the address names, or the last one."""
    page = page_number(view.query("page"))
    found = await view.gateway.get(KEYS, **query_of(find, page))
    if found["matching"] and not found["keys"]:
        page = pages_of(found["matching"])
        found = await view.gateway.get(KEYS, **query_of(find, page))
    return ListPage(found["keys"], found["matching"], page)


async def _chosen(view: View, keys: ListPage) -> Chosen | None:
    """The key to change, which need not be on this page of the list."""
    wanted = (view.query("change") or "")[:LONGEST_FIND] or None
    if wanted is None:
        return None
    for one in keys.shown:
        if one["id"] == wanted:
            return Chosen(wanted, one)
    found = (await view.gateway.get(KEYS, id=wanted))["keys"]
    return Chosen(wanted, found[0] if found else None)


def _change_panel(view: View, keys: ListPage, models: Sequence[str], chosen: Chosen | None) -> None:
    """The form to change a key; `chosen` is opened in it."""
    offered = list(keys.shown)
    if chosen is not None and chosen.key is not None and chosen.key not in offered:
        offered.append(chosen.key)
    if offered:
        with panel("Change a key", CHANGE_NOTE):
            Changer(view, ListPage(offered, keys.matching, keys.page), models, chosen.id if chosen else None)


def _creator(view: View, models: Sequence[str], list_again: Callable[[], Awaitable[None]]) -> None:
    with grid("be-fields"):
        role = ui.select(ROLES, value="app", label="Role").props("dense outlined")
        fields = KeyFields.build(models)
        button = ui.button("Create").props("no-caps unelevated")
    result = html("")
    marked = MarkedFields(fields.by_name(), result)
    every = {"role": role, **fields.by_name()}
    kept = KeptForm("new key", every, lambda said: marked.say(form_word(said)), outlives_leaving=True)

    async def create() -> None:
        try:
            asked = fields.read()
            key_text.require_to_come(asked["expires_at_us"], time.time_ns() // 1000)
            made = await view.gateway.post(KEYS, {"role": role.value, **asked})
        except (ValueError, GatewayRefused, GatewayUnreachable) as error:
            marked.say(refusal(view, error), error)
            return
        fields.name.set_value("")  # or another press would make another key of this name
        kept.opened()
        marked.say(
            f'<p class="be-fine" role="status">{escape(made["name"])} can be used now. Copy the key: it is not '
            f'shown again.</p><code class="be-secret">{escape(made["key"])}</code>'
        )
        with contextlib.suppress(GatewayRefused, GatewayUnreachable):  # the secret is on the page, and stays
            await list_again()

    on_press(button, create)


def _listing(view: View, keys: ListPage, find: str) -> str:
    search = _search(keys, find) if find or keys.pages > 1 else ""
    none = markup.message("No such key", "No key contains all of these words.")
    return search + (_table(view, keys) if keys.shown else none)


def _search(keys: ListPage, find: str) -> str:
    """The search form, and links to the pages before and after."""
    links = keys.links("Newer keys", "Older keys", lambda page: keys_address(find, page))
    shown = f'<p class="be-note be-hint">{keys.range_text}, newest first.{links}</p>' if keys.shown else ""
    field = (
        '<label class="be-field">Name, team, project, tag, role or id'
        f'<input type="search" name="find" value="{escape(find)}" maxlength="{LONGEST_FIND}"></label>'
    )
    return markup.filters("keys", field, button="Search") + shown


def _short(name: str | None) -> Cell:
    """Keeps a short name on one line: `team-49` would break at its hyphen although there is room."""
    if name is None:
        return NONE
    return Cell(name, tone="be-nowrap" if len(name) <= SHORT_NAME else "")


def _table(view: View, keys: ListPage) -> str:
    now_us = time.time_ns() // 1000
    rows = [
        [
            _name(view, keys, one),
            one["role"],
            _short(one["team"]),
            _short(one["project"]),
            Cell(", ".join(one["tags"]), tone="be-tags") if one["tags"] else NONE,
            "all" if one["allowed_models"] is None else ", ".join(one["allowed_models"]) or "none",
            Cell(limits_text(one["limits"]), tone="be-tags"),
            created(one),
            _last_request(one),
            _state(one, now_us),
            Cell("spend", href=f"explorer?{urlencode({'by': 'model', 'key': one['id'], 'period': 'month'})}"),
        ]
        for one in keys.shown
    ]
    names = ("Name", "Role", "Team", "Project", "Tags", "Models", "Limits", "Created", "Last request", "State", "Spend")
    return markup.table([Column(name, title=TITLES.get(name, "")) for name in names], rows, caption="Keys")


def _name(view: View, keys: ListPage, one: Mapping[str, Any]) -> Cell:
    if one["revoked_at_us"]:
        return Cell(one["name"], tone="be-name muted", title=one["id"])
    href = keys_address(typed_find(view.query), keys.page, change=one["id"]) if view.session.may("keys.write") else None
    return Cell(one["name"], tone="be-name", title=one["id"], href=href)


def created(one: Mapping[str, Any]) -> Cell:
    whose = f", from {one['taken_over_from']}" if one["taken_over_from"] else ""
    return Cell(
        f"{display.day_of(one['created_at_us'])}{whose}", tone="be-nowrap", title=display.moment(one["created_at_us"])
    )


def _last_request(one: Mapping[str, Any]) -> Cell:
    if one["last_request_on"] is None:
        return NOT_USED
    day = display.day(one["last_request_on"])
    return Cell(day.rpartition(" ")[0], tone="be-nowrap", title=day)


def _state(one: Mapping[str, Any], now_us: int) -> Cell:
    """Its state, and whether old secrets are used, which matters before an overlap is ended."""
    state = _standing(one, now_us)
    if state.tone == "bad" or not one["old_secrets"]:
        return state
    said = old_secrets_text(one["old_secrets"])
    return Cell(
        f"{state.text}, old secret {'in use' if is_used(one['old_secrets']) else 'works'}",
        tone="warn",
        title="; ".join(filter(None, (state.title, said))),
    )


def _standing(one: Mapping[str, Any], now_us: int) -> Cell:
    if one["revoked_at_us"]:
        revoked_at_us = one["revoked_at_us"]
        return Cell(f"revoked {display.day_of(revoked_at_us)}", tone="bad", title=display.moment(revoked_at_us))
    ends_at_us = one["expires_at_us"]
    if ends_at_us is None:
        return Cell("active", tone="good")
    title, last = f"ends {display.moment(ends_at_us)}", display.day(key_text.last_day(ends_at_us))
    if ends_at_us <= now_us:
        return Cell(f"expired {last}", tone="bad", title=title)
    return Cell(f"until {last}", title=title)
