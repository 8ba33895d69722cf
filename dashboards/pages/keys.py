"""API keys: one for each app or person, with a team that its cost belongs to, and with limits."""

import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
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
from dashboards.frame import View, confirm, grid, html, panel, refusal
from dashboards.gateway_client import GatewayRefused, GatewayUnreachable
from dashboards.limit_words import limits_text
from dashboards.list_page import LONGEST_FIND, ListPage, page_number, pages_of, query_of, typed_find
from dashboards.markup import Cell, Column
from dashboards.secret_words import is_used, old_secrets_text

KEYS = "/admin/v1/keys"
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
DAY_SECONDS = 86_400
OVERLAPS = {
    0: "no longer",
    3600: "1 hour",
    DAY_SECONDS: "24 hours",
    7 * DAY_SECONDS: "7 days",
    30 * DAY_SECONDS: "30 days",
}

CHANGE_NOTE = (
    "Changes and revocations reach every worker within a second. What a key has spent stays with the team, project and "
    "tags that it had then. With a new secret it is still the same key: both secrets count towards its limits."
)


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


@dataclass(frozen=True, slots=True)
class Chosen:
    """The key that the address asks to change; `key` is None if there is none with this id."""

    id: str
    key: dict[str, Any] | None


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


def why_not_changed(chosen: Chosen) -> str | None:
    """The reason, or None if it can be changed."""
    if chosen.key is None:
        return f"There is no key with the id {chosen.id!r}."
    if chosen.key["revoked_at_us"]:
        name, day = chosen.key["name"], display.day_of(chosen.key["revoked_at_us"])
        return f"The key {name!r} was revoked on {day}: it cannot be used or changed again."
    return None


async def as_it_is(view: View, key_id: str) -> dict[str, Any]:
    """The key now: others may have changed it meanwhile. Raises ValueError if it cannot be changed any more."""
    found: list[dict[str, Any]] = (await view.gateway.get(KEYS, id=key_id, last_requests=False))["keys"]
    if (why := why_not_changed(Chosen(key_id, found[0] if found else None))) is not None:
        raise ValueError(why)
    return found[0]


def _change_panel(view: View, keys: ListPage, models: Sequence[str], chosen: Chosen | None) -> None:
    """The form to change a key; `chosen` is opened in it."""
    offered = list(keys.shown)
    if chosen is not None and chosen.key is not None and chosen.key not in offered:
        offered.append(chosen.key)
    if offered:
        with panel("Change a key", CHANGE_NOTE):
            _Changer(view, ListPage(offered, keys.matching, keys.page), models, chosen.id if chosen else None)


def _creator(view: View, models: Sequence[str], list_again: Callable[[], Awaitable[None]]) -> None:
    with grid("be-fields"):
        role = ui.select(ROLES, value="app", label="Role").props("dense outlined")
        fields = KeyFields.build(models)
        button = ui.button("Create").props("no-caps unelevated")
    result = html("")
    marked = MarkedFields(fields.by_name(), result)
    kept = KeptForm("new key", {"role": role, **fields.by_name()}, lambda said: marked.say(form_word(said)))

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
    links = keys.links("Newer keys", "Older keys", lambda page: _address(find, page))
    shown = f'<p class="be-note be-hint">{keys.range_text}, newest first.{links}</p>' if keys.shown else ""
    field = (
        '<label class="be-field">Name, team, project, tag, role or id'
        f'<input type="search" name="find" value="{escape(find)}" maxlength="{LONGEST_FIND}"></label>'
    )
    return markup.filters("keys", field, button="Search") + shown


def _address(find: str, page: int, *, change: str | None = None) -> str:
    asked = ({"find": find} if find else {}) | ({"page": str(page)} if page > 1 else {})
    asked |= {"change": change} if change else {}
    return "keys" + (f"?{urlencode(asked)}" if asked else "")


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
    href = _address(typed_find(view.query), keys.page, change=one["id"]) if view.session.may("keys.write") else None
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


class _Changer:
    """Choose a key, change or revoke it. It remembers what it showed, so that only changes are sent."""

    def __init__(self, view: View, keys: ListPage, models: Sequence[str], wanted: str | None) -> None:
        self._view = view
        self._afterwards = f"/{_address(typed_find(view.query), keys.page)}"
        self._working = {one["id"]: one for one in keys.shown if not one["revoked_at_us"]}
        self._shown: dict[str, Any] = {}
        labels = {key: f"{one['name']} ({one['role']})" for key, one in self._working.items()}
        self._chosen = ui.select(labels, label="Key", on_change=self._show)
        self._chosen.props("dense outlined").style("min-width: 16rem; max-width: 26rem")
        with ui.element("div").classes("be-editing") as self._editor:
            with grid("be-fields"):
                self._fields = KeyFields.build(models)
            with grid("be-actions"):
                on_press(ui.button("Save").props("no-caps unelevated"), self._save)
                ui.button("Revoke", on_click=self._ask_first).props("no-caps outline color=negative")
            with grid("be-filters"):
                self._overlap = ui.select(OVERLAPS, value=DAY_SECONDS, label="The old secret works for")
                self._overlap.props("dense outlined").classes("be-short")
                on_press(ui.button("New secret").props("no-caps outline"), self._rotate)
                self._end = ui.button("End the old secret now", on_click=self._ask_to_end)
                self._end.props("no-caps outline color=negative")
            self._old = html("")
        self._problem = html("")
        self._editor.set_visibility(False)
        self._marked = MarkedFields(self._fields.by_name(), self._problem)
        self._kept = KeptForm("key", self._fields.by_name(), self._say, of=self._chosen)
        if wanted in self._working:
            self._chosen.set_value(wanted)

    @property
    def _path(self) -> str:
        return f"{KEYS}/{self._chosen.value}"

    def _show(self) -> None:
        self._fields.show(self._working[self._chosen.value])
        self._shown = self._fields.read()
        self._kept.opened()
        self._marked.say("")
        self._show_old()
        self._editor.set_visibility(True)

    def _show_old(self) -> None:
        old_secrets = self._working[self._chosen.value]["old_secrets"]
        self._end.set_visibility(bool(old_secrets))
        said = old_secrets_text(old_secrets) if old_secrets else ""
        self._old.set_content(f'<p class="be-note be-hint">{escape(said[:1].upper() + said[1:])}.</p>' if said else "")

    async def _rotate(self) -> None:
        name = self._working[self._chosen.value]["name"]
        if self._overlap.value:
            await self._replace_secret()
        else:
            asked = f"Replace the secret of {name!r} at once? Whoever still uses an old one is refused within a second."
            confirm(asked, "Replace it now", self._replace_secret)

    async def _replace_secret(self) -> None:
        try:
            made = await self._view.gateway.post(f"{self._path}/rotate", {"overlap_seconds": self._overlap.value})
        except (GatewayRefused, GatewayUnreachable) as error:
            self._marked.say(refusal(self._view, error), error)
            return
        self._working[made["id"]] = {name: value for name, value in made.items() if name != "key"}
        self._show_old()
        self._marked.say(
            f'<p class="be-fine" role="status">The new secret of {escape(made["name"])} works now. Copy it: it is not '
            f'shown again.</p><code class="be-secret">{escape(made["key"])}</code>'
        )

    def _ask_to_end(self) -> None:
        one = self._working[self._chosen.value]
        said = old_secrets_text(one["old_secrets"])
        asked = f"End it for {one['name']!r}? At present {said}. Whoever still uses it is refused within a second."
        confirm(asked, "End it now", self._end_overlap)

    async def _end_overlap(self) -> None:
        await self._attempt(self._view.gateway.post(f"{self._path}/end-overlap", limit=0))

    async def _save(self) -> None:
        try:
            change = key_text.changed(self._shown, self._fields.read())
            key_text.require_to_come(change.get("expires_at_us"), time.time_ns() // 1000)
            now = await as_it_is(self._view, self._chosen.value)
            if "limits" in change:
                change["limits"] = key_text.merged(self._shown["limits"], change["limits"], now["limits"])
        except (ValueError, GatewayRefused, GatewayUnreachable) as error:
            self._marked.say(refusal(self._view, error), error)
            return
        if change:
            await self._attempt(self._view.gateway.patch(self._path, change, limit=0))
        else:
            self._say("Nothing was changed.")

    def _say(self, said: str) -> None:
        self._marked.say(form_word(said))

    def _ask_first(self) -> None:
        name = self._working[self._chosen.value]["name"]
        asked = f"Revoke the key {name!r}? Whoever uses it is refused within a second, and it cannot be used again."
        confirm(asked, "Revoke for good", self._revoke)

    async def _revoke(self) -> None:
        await self._attempt(self._view.gateway.post(f"{self._path}/revoke", limit=0))

    async def _attempt(self, change: Awaitable[Any]) -> None:
        try:
            await change
        except (GatewayRefused, GatewayUnreachable) as error:
            self._marked.say(refusal(self._view, error), error)
            return
        ui.navigate.to(self._afterwards)
