"""The rules as a form. It edits the same text as the editor; what is not touched keeps every character."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any

from nicegui import ui

from dashboards import markup
from dashboards.frame import grid, html
from dashboards.rules.fields import Field, rule_fields, with_value
from dashboards.rules.text import NEW_RULE, NotEditable, Rule, RulesText, moved, split_rules, summary

Change = Callable[[Mapping[str, Any]], None]


@dataclass(frozen=True, slots=True)
class Known:
    """What may be written: the JSON schema, and the models of the deployment."""

    schema: Mapping[str, Any]
    models: Sequence[str]


class RuleForm:
    """A form over the text that `read` returns and `write` stores."""

    def __init__(self, known: Known, read: Callable[[], str], write: Callable[[str], None], *, may_write: bool) -> None:
        self._known = known
        self._read = read
        self._write = write
        self._may_write = may_write
        self._when = rule_fields(known.schema, "when")
        self._choose = rule_fields(known.schema, "choose")
        self._text: RulesText | None = None
        self._box = ui.element("div").classes("be-rule-form")
        self._shown: list[tuple[ui.element, ui.html]] = []

    def show(self) -> None:
        """Build the form from the current text."""
        self._box.clear()
        self._shown.clear()
        with self._box:
            try:
                self._text = split_rules(self._read())
            except NotEditable as reason:
                html(markup.message("The form cannot show this text", str(reason), tone="warn"))
                return
            for index, rule in enumerate(self._text.rules):
                self._rule(index, rule)
            if self._may_write:
                ui.button("Add a rule above the last", on_click=self._add).props("no-caps outline")

    def mark(self, wrong: int | None, said: str, *, is_shown: bool) -> None:
        """Mark the rule with the first mistake, if it is in one, and show what is `said` about it."""
        for index, (rule, problem) in enumerate(self._shown):
            rule.classes(**{"add" if index == wrong else "remove": "be-wrong"})
            problem.set_content(f'<p class="be-problem">{escape(said)}</p>' if index == wrong else "")
            if is_shown and index == wrong:
                rule.run_method("scrollIntoView", {"block": "nearest"})

    def _set(self, rules: Sequence[Rule], *, rebuild: bool) -> None:
        assert self._text is not None
        self._text = replace(self._text, rules=tuple(rules))
        self._write(self._text.join())
        if rebuild:
            self.show()

    def _rules(self) -> list[Rule]:
        assert self._text is not None
        return list(self._text.rules)

    def _add(self) -> None:
        rules = self._rules()
        taken = {rule.name for rule in rules}
        name = next(name for n in range(1, len(rules) + 2) if (name := f"new-rule-{n}") not in taken)
        self._set([*rules[:-1], Rule("", None, {**NEW_RULE, "name": name}), rules[-1]], rebuild=True)

    def _rule(self, index: int, rule: Rule) -> None:
        with ui.element("fieldset").classes("be-rule") as box:
            with ui.element("div").classes("be-rule-head"):
                html(f"<legend>{index + 1}</legend>")
                name = ui.input("Name", value=rule.name).props("dense outlined maxlength=120").classes("be-rule-name")
                says = ui.label(summary(rule.content)).classes("be-rule-summary")
                if self._may_write:
                    self._controls(index)
            self._shown.append((box, html("")))

            headings: dict[str, ui.label] = {}

            def change(content: Mapping[str, Any]) -> None:
                rules = self._rules()
                rules[index] = rules[index].with_content(content)
                says.set_text(summary(content))
                headings["when"].set_text(_heading("when", content))
                self._set(rules, rebuild=False)

            name.on_value_change(lambda event: change({**self._rules()[index].content, "name": event.value or ""}))
            name.set_enabled(self._may_write)
            for part, fields in (("when", self._when), ("choose", self._choose)):
                given = rule.content.get(part) or {}
                headings[part] = ui.label(_heading(part, rule.content)).classes("be-rule-part")
                used = [field for field in fields if field.name in given]
                with grid("be-fields"):
                    for field in used:
                        self._field(index, part, field, change)
                if self._may_write and len(used) < len(fields):
                    self._more(index, part, [field for field in fields if field not in used], change)

    def _more(self, index: int, part: str, fields: Sequence[Field], change: Change) -> None:
        """The fields that are not used yet, folded away."""
        title = "More conditions" if part == "when" else "More options"
        with ui.expansion(title).props("dense").classes("be-more"), grid("be-fields"):
            for field in fields:
                self._field(index, part, field, change)

    def _controls(self, index: int) -> None:
        def button(icon: str, label: str, act: Callable[[], None]) -> None:
            ui.button(icon, on_click=act).props(f'flat dense no-caps aria-label="{label}"').tooltip(label)

        with ui.element("div").classes("be-rule-controls"):
            button("↑", "Move up", lambda: self._set(moved(self._rules(), index, -1), rebuild=True))
            button("↓", "Move down", lambda: self._set(moved(self._rules(), index, 1), rebuild=True))
            button("✕", "Delete", lambda: self._delete(index))

    def _delete(self, index: int) -> None:
        rules = self._rules()
        if len(rules) == 1:
            ui.notify("The last rule decides what no other does: it cannot be deleted.", type="warning")
            return
        self._set([*rules[:index], *rules[index + 1 :]], rebuild=True)

    def _field(self, index: int, part: str, field: Field, change: Change) -> None:
        given = (self._rules()[index].content.get(part) or {}).get(field.name)

        def changed(value: Any) -> None:
            change(with_value(self._rules()[index].content, part, field.name, value))

        if field.kind == "range":
            _range(field, given, changed, is_enabled=self._may_write)
            return
        element = _element(field, given, self._known.models)
        element.on_value_change(lambda event: changed(_plain(field, event.value)))
        element.props("dense outlined").set_enabled(self._may_write)


def _heading(part: str, rule: Mapping[str, Any]) -> str:
    return "Choose" if part == "choose" else "When all of" if rule.get("when") else "Always"


def _element(field: Field, given: Any, models: Sequence[str]) -> ui.number | ui.select | ui.input_chips:
    if field.kind == "number":
        bound = f" ({field.low:g} to {field.high:g})" if field.low is not None and field.high is not None else ""
        return ui.number(field.label + bound, value=given, min=field.low, max=field.high, step=0.05)
    if field.kind == "yes_no":
        return ui.select({True: "yes", False: "no"}, label=field.label, value=given, clearable=True)
    if field.kind == "choice":
        return ui.select(list(field.options), label=field.label, value=given, clearable=True)
    if field.kind == "choices":
        return ui.select(list(field.options), label=field.label, value=given or [], multiple=True).props("use-chips")
    if field.kind == "words":
        return ui.input_chips(field.label, value=given or [], new_value_mode="add-unique").tooltip(
            "Write a name, then Enter"
        )
    chosen = [given] if isinstance(given, str) else list(given or [])
    options = list(dict.fromkeys((*field.options, *models, *chosen)))
    return ui.select(options, label=field.label, value=chosen, multiple=True).props("use-chips")


def _range(field: Field, given: Any, changed: Callable[[Any], None], *, is_enabled: bool) -> None:
    value = dict(given) if isinstance(given, dict) else {}

    def end(name: str, label: str) -> None:
        shown = ui.number(f"{field.label} {label}", value=value.get(name), step=0.05).props("dense outlined")
        shown.set_enabled(is_enabled)

        def ended(number: float | None) -> None:
            value.pop(name, None)
            if number is not None:
                value[name] = whole(number)
            changed({key: value[key] for key in ("at_least", "at_most") if key in value} or None)

        shown.on_value_change(lambda event: ended(event.value))

    end("at_least", "at least")
    end("at_most", "at most")


def _plain(field: Field, value: Any) -> Any:
    """The value for the YAML; None removes the field."""
    if field.kind == "number":
        return None if value is None else whole(value)
    if field.kind == "words_or_choice":
        keyword = next((one for one in reversed(value or []) if one in field.options), None)
        return keyword or list(value or []) or None
    return value if value or value is False else None


def whole(number: float) -> float | int:
    """`8000` rather than `8000.0`."""
    return int(number) if number == int(number) else number
