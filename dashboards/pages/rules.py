"""The rules editor: mistakes shown at their line, the diff and a replay before saving, history and roll-back."""

import difflib
from dataclasses import dataclass, field
from html import escape
from typing import Any

from nicegui import ui

from dashboards import display, markup
from dashboards.frame import View, grid, html, panel
from dashboards.gateway_client import GatewayRefused, GatewayUnreachable
from dashboards.markup import Cell, Column

RULES = "/admin/v1/rules"


@dataclass(slots=True)
class Editor:
    """One open editor. `base` is the version its edit started from: saving fails if another became active."""

    view: View
    base: str | None
    base_text: str
    editor: ui.codemirror
    verdict: ui.html
    results: ui.element
    reason: ui.input
    buttons: list[ui.button] = field(default_factory=list[ui.button])

    async def check(self) -> bool:
        """Mark the line of the first mistake; whether there is none."""
        checked = await self.view.gateway.post(f"{RULES}/validate", {"text": self.editor.value})
        problems: list[dict[str, Any]] = checked["problems"]
        lines = self.editor.value.count("\n") + 1
        at = [one["line"] for one in problems if one["line"] is not None and one["line"] <= lines]
        self.editor.decorations[:] = [{"kind": "line", "line": line, "class": "be-error-line"} for line in at]
        if problems:
            one = problems[0]
            where = f"Line {one['line']}" if one["line"] else "This file"
            if at:
                self.editor.reveal_line(at[0])
            what = f"{one['field']}: {one['message']}" if one["field"] else one["message"]
            self.verdict.set_content(f'<p class="be-problem" role="alert">{where}: {escape(what)}</p>')
        else:
            self.verdict.set_content('<p class="be-fine" role="status">Valid.</p>')
        return not problems

    async def compare(self) -> None:
        """The active version and the edit beside each other."""
        self.results.clear()
        old, new = self.base_text.splitlines(), self.editor.value.splitlines()
        with self.results, panel("What changes", "The active version on the left, your edit on the right."):
            if old == new:
                html(markup.message("Nothing changed", "The edit is the same as the active version."))
            else:
                html(
                    markup.side_by_side(old, new, difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes())
                )

    async def replay(self) -> None:
        """The last seven days under the edit; nothing is saved."""
        if not await self.check():
            return
        found = await self.view.gateway.post(f"{RULES}/replay", {"text": self.editor.value})
        self.results.clear()
        with (
            self.results,
            panel("Replay of the last seven days", "Logged traffic decided again under your edit; no model is called."),
        ):
            html(replay_result(found))

    async def save(self, *, activate: bool) -> None:
        """Store the edit, and make it the active version if asked to."""
        if not await self.check():
            return
        saved = await self.view.gateway.put(
            RULES,
            {
                "text": self.editor.value,
                "expected_active": self.base,
                "reason": self.reason.value or "",
                "activate": activate,
            },
        )
        if activate:
            ui.navigate.to("/rules?done=activated")
        else:
            ui.notify(f"Saved as version {saved['version']}; it is not active yet.", type="positive")


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
    with panel("Editor" if may_write else "Active rules", _editor_note(shown, may_write=may_write)):
        _editor(view, listed["active"], active_text, shown["text"], may_write=may_write)
    with panel("History", "Versions are never changed or deleted. Times in UTC."):
        _history(view, listed, may_write=may_write)


def _editor_note(shown: dict[str, Any], *, may_write: bool) -> str:
    state = "active" if shown["is_active"] else "not active"
    suffix = "" if may_write else " Your role may read and replay, not save."
    return f"Version {shown['version']} ({state}), by {shown['author']}.{suffix}"


def _banners(view: View, listed: dict[str, Any]) -> None:
    if view.query("done"):
        html(f'<div class="be-banner" role="status">Version {escape(str(listed["active"]))} is active now.</div>')
    if (problem := listed["problem"]) is not None:
        where = f"line {problem['line']}: " if problem["line"] else ""
        html(
            '<div class="be-banner warn" role="alert">rules.yaml is not valid; the last good version stays active. '
            f"{escape(where + problem['field'] + ' ' + problem['message'])}</div>"
        )


def _editor(view: View, base: str | None, base_text: str, text: str, *, may_write: bool) -> None:
    code = ui.codemirror(text, language="YAML", indent="  ").classes("be-editor").props('aria-label="Rules as YAML"')
    code.set_theme("vscodeDark" if view.request.cookies.get("breakeven_theme") == "dark" else "basicLight")
    verdict = html("")
    actions = grid("be-actions")
    results = ui.element("div").style("margin-top: 1rem")
    with actions:
        reason = ui.input("Why this change?").props("dense outlined maxlength=500").style("min-width: 16rem")
        reason.set_visibility(may_write)
    open_editor = Editor(view, base, base_text, code, verdict, results, reason)

    async def attempt(what: str, *, activate: bool = False) -> None:
        for button in open_editor.buttons:
            button.disable()
        try:
            if what == "save":
                await open_editor.save(activate=activate)
            else:
                await {"check": open_editor.check, "compare": open_editor.compare, "replay": open_editor.replay}[what]()
        except (GatewayRefused, GatewayUnreachable) as error:
            verdict.set_content(f'<p class="be-problem" role="alert">{escape(str(error))}</p>')
        finally:
            for button in open_editor.buttons:
                button.enable()

    def button(label: str, what: str, *, activate: bool = False, is_main: bool = False) -> None:
        async def pressed() -> None:
            await attempt(what, activate=activate)

        shown = ui.button(label, on_click=pressed).props("no-caps unelevated" if is_main else "no-caps outline")
        open_editor.buttons.append(shown)

    with actions:
        button("Check", "check")
        button("Compare", "compare")
        button("Replay last week", "replay")
        if may_write:
            button("Save", "save")
            button("Save and activate", "save", activate=True, is_main=True)


def _history(view: View, listed: dict[str, Any], *, may_write: bool) -> None:
    rows = [
        [
            Cell(one["version"], href=f"/ui/rules?version={one['version']}", is_code=True),
            Cell("active", tone="good") if one["is_active"] else Cell("", tone="muted"),
            one["author"],
            one["reason"] or display.UNKNOWN,
            display.moment(one["created_at_us"]),
        ]
        for one in listed["versions"]
    ]
    html(
        markup.table(
            [Column("Version"), Column(""), Column("Author"), Column("Why"), Column("Stored")], rows, caption="Versions"
        )
    )
    previous = listed["activations"][0]["previous"] if listed["activations"] else None
    if not may_write:
        return
    with grid("be-actions"):
        chosen = view.query("version")
        if chosen and chosen != listed["active"]:
            _change(view, f"Activate {chosen}", f"{RULES}/{chosen}/activate", listed["active"])
        if previous is not None:
            _change(view, f"Roll back to {previous}", f"{RULES}/rollback", listed["active"])


def _change(view: View, label: str, path: str, expected: str | None) -> None:
    async def pressed() -> None:
        try:
            await view.gateway.post(path, {"expected_active": expected, "reason": label})
        except (GatewayRefused, GatewayUnreachable) as error:
            ui.notify(str(error), type="negative", multi_line=True)
            return
        ui.navigate.to("/rules?done=changed")

    ui.button(label, on_click=pressed).props("no-caps outline")


def replay_result(found: dict[str, Any]) -> str:
    """Dollars, quality, first token and who moved, before and after."""
    if not found["requests"]:
        return markup.message("No traffic to replay", "The ledger has no request in the last seven days.")
    before, after = float(found["cost_before_usd"]), float(found["cost_after_usd"])
    change = f"{100 * (after / before - 1):+.1f} %" if before else "no spend before"
    tiles = [
        markup.tile("Requests", display.count(found["requests"]), display.period(found["since"], found["until"])),
        markup.tile(
            "Moved",
            display.count(found["moved_requests"]),
            f"{display.share(found['moved_requests'] / found['requests'])} go elsewhere",
        ),
        markup.tile(
            "Cost",
            display.dollars(found["cost_after_usd"]),
            f"was {display.dollars(found['cost_before_usd'])} ({change})",
            tone="good" if after < before else "bad" if after > before else "",
        ),
        markup.tile("Predicted quality", _plain(found["quality_after"]), f"was {_plain(found['quality_before'])}"),
        markup.tile(
            "First token, median",
            display.seconds(found["time_to_first_token_after_seconds"]),
            f"was {display.seconds(found['time_to_first_token_before_seconds'])}",
        ),
        markup.tile(
            "Refused",
            display.count(found["refused_requests"]),
            "no model may serve them",
            tone="bad" if found["refused_requests"] else "",
        ),
    ]
    moves = markup.table(
        [
            Column("From"),
            Column("To"),
            Column("Requests", is_number=True),
            Column("Change of cost", is_number=True),
        ],
        [
            [
                move["from_model"],
                move["to_model"],
                display.count(move["requests"]),
                display.dollars(move["cost_change_usd"]),
            ]
            for move in found["moves"]
        ],
        caption="Where requests would move",
    )
    notes = "".join(f"<li>{escape(note)}</li>" for note in found["notes"])
    return (
        markup.tiles(tiles)
        + (moves if found["moves"] else "")
        + (f'<ul class="be-caveats">{notes}</ul>' if notes else "")
    )


def _plain(value: float | None) -> str:
    return display.UNKNOWN if value is None else f"{value:.3f}"
