"""A form that survives the end of its session: the tab keeps unsent input and restores it. Knows no page.

static/kept_forms.js reads typed text in the browser, since the server may never have received it. It learns from here
what was chosen, and what the form showed at first. Nothing is sent before somebody presses the button again.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from nicegui import ui
from nicegui.elements.mixins.value_element import ValueElement
from nicegui.events import GenericEventArguments

BRING_BACK = (
    "import(window.path_prefix + '/static/kept_forms.js').then((forms) => forms.bringBack(getHtmlElement({id})))"
)
HERE_AGAIN = (
    "You were signed out, or the connection was lost. What you had typed has been restored; it is sent once you press "
    "the button."
)
BACK_AGAIN = "What you had typed has been restored; it is sent once you press the button."
NOT_ALL = " Some of the choices no longer exist."
GONE = "What you had typed was for something that no longer exists."
LONGEST = 100_000
"""Characters: as many as the longest field takes."""


class KeptForm:
    """`said` shows the message that input was restored. `of` selects what the form edits, if that exists already: then
    only changed fields are restored, and the others show the current values. Input that `outlives_leaving` is kept
    even when the page is left for another, until somebody signs out."""

    def __init__(
        self,
        name: str,
        fields: Mapping[str, ValueElement[Any]],
        said: Callable[[str], object],
        *,
        of: ui.select | None = None,
        outlives_leaving: bool = False,
    ) -> None:
        self._fields = fields
        self._said = said
        self._of = of
        self._here_again = BACK_AGAIN if outlives_leaving else HERE_AGAIN
        typed = {name: field.html_id for name, field in fields.items() if is_typed(field)}
        self._holder = ui.element("div").classes("be-kept").props("hidden").on("kept", self._come_back, ["detail"])
        self._holder.props["data-form"] = name
        self._holder.props["data-typed"] = json.dumps(typed)
        self._holder.props["data-outlives"] = "leaving" if outlives_leaving else "session"
        for field in fields.values():
            if not is_typed(field):
                field.on_value_change(self._tell_chosen)
        self.opened()
        ui.run_javascript(BRING_BACK.format(id=self._holder.id))

    def opened(self) -> None:
        """The fields' current values need not be kept: they were just filled in by the page, or just sent."""
        self._holder.props["data-opened"] = json.dumps({name: field.value for name, field in self._fields.items()})
        self._tell_chosen()

    def _tell_chosen(self) -> None:
        chosen = {name: field.value for name, field in self._fields.items() if not is_typed(field)}
        self._holder.props["data-chosen"] = json.dumps({"fields": chosen, "of": self._of and self._of.value})

    def _come_back(self, event: GenericEventArguments) -> None:
        kept = event.args["detail"]
        opened, chosen = json.loads(kept["opened"]), json.loads(kept["chosen"])
        last = chosen["fields"] | {name: value_of(self._fields[name], text) for name, text in kept["typed"].items()}
        changed = {name: value for name, value in last.items() if (value or None) != (opened[name] or None)}
        if not changed:
            return
        if self._of is not None and not put_back(self._of, chosen["of"]):
            self._said(GONE)
            return
        wanted = last if self._of is None else changed
        taken = [put_back(self._fields[name], value) for name, value in wanted.items()]
        self._said(self._here_again + ("" if all(taken) else NOT_ALL))


def is_typed(field: ValueElement[Any]) -> bool:
    """Whether it holds typed text, which the server may not have received."""
    return isinstance(field, ui.input | ui.number)


def value_of(field: ValueElement[Any], kept: Any) -> Any:
    """The kept value in the field's own type: a number is text in the browser."""
    if not isinstance(field, ui.number):
        return kept[:LONGEST] if isinstance(kept, str) else kept
    try:
        return float(kept)
    except (TypeError, ValueError):
        return None


def put_back(field: ValueElement[Any], value: Any) -> bool:
    """Restore a value; False if it is a choice that no longer exists."""
    if isinstance(field, ui.select):
        choices = set(field.options)
        if not (choices.issuperset(value or []) if field.multiple else value in choices):
            return False
    field.set_value(value)
    return True
