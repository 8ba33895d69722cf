"""The fields of a form; a wrong one is marked, gets the focus, and is described by the form's message."""

from collections.abc import Mapping
from typing import Any

from nicegui import ui
from nicegui.elements.mixins.value_element import ValueElement

from dashboards.forms.problem import WrongField, field_of
from dashboards.gateway_client import GatewayRefused


class MarkedFields:
    """`said` is the element for the form's message; fields are named as in form_problem."""

    def __init__(self, fields: Mapping[str, ValueElement[Any]], said: ui.html) -> None:
        self._fields = fields
        self._said = said
        self._marked: ValueElement[Any] | None = None

    def say(self, markup: str, error: Exception | None = None) -> None:
        """Show a message instead of the last one, and mark the field that the error is about, if it is one's."""
        self._said.set_content(markup)
        if self._marked is not None:
            self._marked.props(remove="aria-invalid aria-describedby")
        self._marked = None if error is None else self._fields.get(named_by(error) or "")
        if self._marked is not None:
            self._marked.props(f"aria-invalid=true aria-describedby={self._said.html_id}")
            self._marked.run_method("focus")


def named_by(error: Exception) -> str | None:
    if isinstance(error, WrongField):
        return error.field
    return field_of(error.message, error.field) if isinstance(error, GatewayRefused) else None
