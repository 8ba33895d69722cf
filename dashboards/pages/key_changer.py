"""The form that changes, replaces the secret of, or revokes one key."""

import time
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any
from urllib.parse import urlencode

from nicegui import ui

from dashboards import display
from dashboards.forms import key_text
from dashboards.forms.kept import KeptForm
from dashboards.forms.key_fields import KeyFields
from dashboards.forms.marked_fields import MarkedFields
from dashboards.forms.one_press import on_press
from dashboards.forms.problem import form_word
from dashboards.frame import View, attempt, confirm, grid, html, refusal
from dashboards.gateway_client import GatewayRefused, GatewayUnreachable
from dashboards.list_page import ListPage, typed_find
from dashboards.secret_words import old_secrets_text

KEYS = "/admin/v1/keys"
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


@dataclass(frozen=True, slots=True)
class Chosen:
    """The key that the address asks to change; `key` is None if there is none with this id."""

    id: str
    key: dict[str, Any] | None


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


def keys_address(find: str, page: int, *, change: str | None = None) -> str:
    """The page Keys, at this part of its list; `change` is the key to open."""
    asked = ({"find": find} if find else {}) | ({"page": str(page)} if page > 1 else {})
    asked |= {"change": change} if change else {}
    return "keys" + (f"?{urlencode(asked)}" if asked else "")


class Changer:
    """Choose a key, change or revoke it. It remembers what it showed, so that only changes are sent."""

    def __init__(self, view: View, keys: ListPage, models: Sequence[str], wanted: str | None) -> None:
        self._view = view
        self._afterwards = f"/{keys_address(typed_find(view.query), keys.page)}"
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
        await attempt(self._view, change, self._marked, afterwards=self._afterwards)
