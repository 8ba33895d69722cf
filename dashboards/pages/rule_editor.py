"""The rules editor: as text or form, with mistakes marked at their line, a diff, and a replay before saving."""

import asyncio
import difflib
from collections.abc import Callable
from dataclasses import dataclass, field
from html import escape
from typing import Any, Literal

from nicegui import ui

from dashboards import markup
from dashboards.forms.one_press import give_back_focus
from dashboards.frame import View, grid, html, panel, way_on
from dashboards.gateway_client import GatewayRefused, GatewayUnreachable
from dashboards.pages.replay_result import replay_result
from dashboards.pages.rule_form import Known, RuleForm
from dashboards.rules.text import rule_of, where

RULES = "/admin/v1/rules"
PAUSE_SECONDS = 0.7
"""The text is checked after a pause in typing this long."""
MOST_PAIRS = 10**7
"""Pairs of lines. Above this, difflib ignores frequent lines: comparing them all would keep everybody waiting."""
IN_TEXT = "Ctrl-Space suggests what may be written. Tab indents; Esc, then Tab, leaves the text."
IN_FORM = "Rules that you do not change keep their text; comments inside one that you change are lost."
Action = Literal["check", "compare", "replay", "save", "activate"]
ATTACH = "import(window.path_prefix + '/static/rules_editor.js').then((editor) => editor.attach(getElement({id})))"
CHANGED_MEANWHILE = "rules_changed_meanwhile"


@dataclass(slots=True)
class Editor:
    """`base` is the version that the edit started from: saving fails if another became active. `opened` is the text as
    the page was loaded. `on_overtaken` receives the list of versions when another one became active meanwhile."""

    view: View
    opened: str
    base: str | None
    base_text: str
    code: ui.codemirror
    verdict: ui.html
    results: ui.element
    reason: ui.input
    form: RuleForm | None = None
    buttons: list[ui.button] = field(default_factory=list[ui.button])
    changes: int = 0
    on_overtaken: Callable[[dict[str, Any]], None] = lambda _: None

    @property
    def is_edited(self) -> bool:
        return self.code.value != self.opened

    async def check(self, *, is_asked: bool = True) -> bool:
        """Mark the line of the first mistake; True if there is none. Scrolls to it only if the check was asked for."""
        change = self.changes
        checked = await self.view.gateway.post(f"{RULES}/validate", {"text": self.code.value})
        if not is_asked and change != self.changes:
            return False  # outdated: something else was asked for since
        problems: list[dict[str, Any]] = checked["problems"]
        if not problems:
            self.code.decorations[:] = []
            self.code.line_tooltips = {}
            self._mark(None, "")
            self.verdict.set_content('<p class="be-fine" role="status">Valid.</p>')
            return True
        one = problems[0]
        line: int | None = one["line"]
        what = f"{one['field']}: {one['message']}" if one["field"] else one["message"]
        has_line = line is not None and line <= self.code.value.count("\n") + 1
        self.code.decorations[:] = [{"kind": "line", "line": line, "class": "be-error-line"}] if has_line else []
        self.code.line_tooltips = {line: what} if has_line and line is not None else {}
        if has_line and line is not None and is_asked:
            self.code.reveal_line(line)
        said = f"{where(line, one['field'])}: {one['message']}"
        self._mark(rule_of(one["field"]), said, is_shown=is_asked)
        self.complain(said)
        return False

    def _mark(self, rule: int | None, said: str, *, is_shown: bool = False) -> None:
        if self.form is not None:
            self.form.mark(rule, said, is_shown=is_shown)

    async def changed(self) -> None:
        """Check after a pause in typing."""
        self.changes += 1
        change = self.changes
        await asyncio.sleep(PAUSE_SECONDS)
        if change == self.changes:
            await self.attempt("check", is_asked=False)

    async def compare(self) -> None:
        """The active version and the edit side by side."""
        self.results.clear()
        old, new = self.base_text.splitlines(), self.code.value.splitlines()
        with self.results, panel("What changes", "The active version on the left, your edit on the right."):
            if old == new:
                html(markup.message("Nothing changed", "The edit is the same as the active version."))
            else:
                is_long = len(old) * len(new) > MOST_PAIRS
                matcher = difflib.SequenceMatcher(None, old, new, autojunk=is_long)
                html(markup.side_by_side(old, new, matcher.get_opcodes()))

    async def replay(self) -> None:
        """The last seven days under the edit; nothing is saved."""
        if not await self.check():
            return
        found = await self.view.gateway.post(f"{RULES}/replay", {"text": self.code.value})
        self.results.clear()
        note = "Logged traffic decided again under your edit; no model is called."
        with self.results, panel("Replay of the last seven days", note):
            html(replay_result(found))

    async def save(self, *, activate: bool) -> None:
        """Store the edit, and make it the active version if asked to."""
        if not await self.check():
            return
        body = {"text": self.code.value, "expected_active": self.base, "reason": self.reason.value or ""}
        saved = await self.view.gateway.put(RULES, {**body, "activate": activate})
        leave("/rules?done=activated" if activate else f"/rules?done=saved&version={saved['version']}")

    async def meet(self) -> None:
        """Another version became active meanwhile: show it beside the edit, which would now replace it."""
        listed = await self.view.gateway.get(RULES)
        active = await self.view.gateway.get(f"{RULES}/{listed['active']}")
        self.base, self.base_text = active["version"], active["text"]
        self.on_overtaken(listed)
        await self.compare()
        self.complain(
            f"Version {active['version']} by {active['author']} became active while you edited, so nothing was saved. "
            "It is shown beside your edit below: copy what you want to keep of it; saving again replaces it with yours."
        )

    async def attempt(self, action: Action, *, is_asked: bool = True) -> None:
        """Run an action, or say why it failed. Buttons are disabled while a user waits for one."""
        if is_asked:
            self.changes += 1  # a pending check of the old text must not overwrite this result
            for button in self.buttons:
                button.disable()
        try:
            match action:
                case "check":
                    await self.check(is_asked=is_asked)
                case "compare":
                    await self.compare()
                case "replay":
                    await self.replay()
                case "save" | "activate":
                    await self.save(activate=action == "activate")
        except GatewayRefused as refused:
            if refused.code == CHANGED_MEANWHILE:
                await self.meet()
            else:
                self.complain(str(refused), way_on(self.view, refused))
        except GatewayUnreachable as error:
            self.complain(str(error))
        finally:
            if is_asked:  # else somebody may be waiting for another action
                for button in self.buttons:
                    button.enable()

    def complain(self, said: str, way_on: str = "") -> None:
        """Below the editor."""
        self.verdict.set_content(f'<p class="be-problem" role="alert">{escape(said)}</p>{way_on}')


def leave(address: str) -> None:
    """Leave without the browser's question: the edit is saved, or the user has agreed to lose it."""
    ui.run_javascript("window.onbeforeunload = null")
    ui.navigate.to(address)


async def build_editor(view: View, base: str | None, base_text: str, text: str, *, may_write: bool) -> Editor:
    """The rules as text and as a form, and the actions on them."""
    schema, listed = await asyncio.gather(view.gateway.get(f"{RULES}/schema"), view.gateway.get("/admin/v1/models"))
    shown = ui.toggle({"text": "Text", "form": "Form"}, value="text").props(
        "no-caps unelevated dense padding='2px 14px'"
    )
    shown.classes("be-toggle")
    code = ui.codemirror(text, language="YAML", indent="  ", line_wrapping=True).classes("be-editor")
    form_box = ui.element("div")
    hint = html(_hint(IN_TEXT))
    verdict = html("").classes("be-verdict")  # takes its space while empty, so that no button moves under the pointer
    actions = grid("be-actions")
    results = ui.element("div").style("margin-top: 1rem")
    with actions:
        reason = ui.input("Why this change?").props("dense outlined maxlength=500").style("min-width: 16rem")
        reason.set_visibility(may_write)
    editor = Editor(view, text, base, base_text, code, verdict, results, reason)

    def write(changed: str) -> None:
        code.set_value(changed)

    with form_box:
        known = Known(schema, [one["name"] for one in listed["models"]])
        form = editor.form = RuleForm(known, lambda: code.value, write, may_write=may_write)
    form_box.set_visibility(False)
    hint.set_visibility(may_write)

    def switch() -> None:
        is_form = shown.value == "form"
        if is_form:
            form.show()
        form_box.set_visibility(is_form)
        code.set_visibility(not is_form)
        hint.set_content(_hint(IN_FORM if is_form else IN_TEXT))

    shown.on_value_change(switch)
    if view.query("view") == "form":
        shown.set_value("form")
    code.on_value_change(editor.changed)
    ui.run_javascript(ATTACH.format(id=code.id))
    with actions:
        _buttons(editor, may_write=may_write)
    return editor


def _hint(said: str) -> str:
    return f'<p class="be-note be-hint be-unprinted">{said}</p>'


def _buttons(editor: Editor, *, may_write: bool) -> None:
    def button(label: str, action: Action, *, is_main: bool = False) -> None:
        async def pressed() -> None:
            await editor.attempt(action)
            give_back_focus(shown)

        shown = ui.button(label, on_click=pressed).props("no-caps unelevated" if is_main else "no-caps outline")
        editor.buttons.append(shown)

    button("Check", "check")
    button("Compare", "compare")
    button("Replay last week", "replay")
    if may_write:
        button("Save", "save")
        button("Save and activate", "activate", is_main=True)
