"""The rules editor: mistakes shown at their line, the diff and a replay before saving, history and roll-back."""

from html import escape
from typing import Any

from nicegui import ui

from dashboards import display, markup
from dashboards.forms.one_press import on_press
from dashboards.frame import View, confirm, grid, html, panel
from dashboards.gateway_client import GatewayRefused, GatewayUnreachable
from dashboards.markup import Cell, Column
from dashboards.pages.rule_editor import RULES, Editor, build_editor, leave


async def build(view: View) -> None:
    """Editor, then history."""
    listed = await view.gateway.get(RULES)
    chosen = view.query("version") or listed["active"]
    if chosen is None:
        html(markup.message("No rules yet", "The gateway has no active rules version.", tone="warn"))
        return
    shown = await view.gateway.get(f"{RULES}/{chosen}")
    active_text = (await view.gateway.get(f"{RULES}/{listed['active']}"))["text"] if listed["active"] else ""
    _banners(view, listed)
    may_write = view.session.may("rules.write")
    with panel("Editor" if may_write else "Active rules"):
        note = html("")
        editor = await build_editor(view, listed["active"], active_text, shown["text"], may_write=may_write)
    with panel("History", "Versions are never changed or deleted. Times in UTC."):
        history = ui.element("div")

    def show_state(listed: dict[str, Any]) -> None:
        """Which version is active; again when another one became that while the page was open."""
        note.set_content(_editor_note(shown, listed["active"], may_write=may_write))
        history.clear()
        with history:
            _history(view, listed, editor, may_write=may_write)

    show_state(listed)
    editor.on_overtaken = show_state


def _editor_note(shown: dict[str, Any], active: str | None, *, may_write: bool) -> str:
    state = "active" if shown["version"] == active else "not active"
    suffix = "" if may_write else " Your role may read and replay, not save."
    said = f"Version {shown['version']} ({state}), by {shown['author']}.{suffix}"
    return f'<p class="be-note">{escape(said)}</p>'


def _banners(view: View, listed: dict[str, Any]) -> None:
    if (done := view.query("done")) is not None:
        said = (
            f"Version {view.query('version')} is saved, but not active."
            if done == "saved"
            else f"Version {listed['active']} is active now."
        )
        html(f'<div class="be-banner" role="status">{escape(said)}</div>')
    if (problem := listed["problem"]) is not None:
        where = f"line {problem['line']}: " if problem["line"] else ""
        html(
            '<div class="be-banner warn" role="alert">rules.yaml is not valid; the last good version stays active. '
            f"{escape(where + problem['field'] + ' ' + problem['message'])}</div>"
        )


def _history(view: View, listed: dict[str, Any], editor: Editor, *, may_write: bool) -> None:
    rows = [
        [
            Cell(one["version"], href=f"rules?version={one['version']}", is_code=True),
            Cell("active", tone="good") if one["is_active"] else Cell("", tone="muted"),
            one["author"],
            one["reason"] or display.UNKNOWN,
            display.moment(one["created_at_us"]),
        ]
        for one in listed["versions"]
    ]
    columns = [Column("Version"), Column("State"), Column("Author"), Column("Why"), Column("Stored")]
    html(markup.table(columns, rows, caption="Versions"))
    previous = listed["activations"][0]["previous"] if listed["activations"] else None
    if not may_write:
        return
    with grid("be-actions"):
        chosen = view.query("version")
        if chosen and chosen != listed["active"]:
            _change(editor, f"Activate {chosen}", f"{RULES}/{chosen}/activate", listed["active"])
        if previous is not None:
            _change(editor, f"Roll back to {previous}", f"{RULES}/rollback", listed["active"])


def _change(editor: Editor, label: str, path: str, expected: str | None) -> None:
    async def change() -> None:
        try:
            await editor.view.gateway.post(path, {"expected_active": expected, "reason": label})
        except (GatewayRefused, GatewayUnreachable) as error:
            ui.notify(str(error), type="negative", multi_line=True)
            return
        leave("/rules?done=changed")

    async def pressed() -> None:
        if not editor.is_edited:
            await change()
            return
        agreed = f"Discard it, {label[0].lower()}{label[1:]}"
        confirm("The edit above is not saved and would be lost.", agreed, change)

    on_press(ui.button(label).props("no-caps outline"), pressed)
