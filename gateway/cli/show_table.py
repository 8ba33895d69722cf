"""Prints a table of figures in full: a narrow terminal wraps its lines, and no digit is cut off."""

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

WIDEST = 1000


class _LiteralConsole(Console):
    """Prints cells as they are. A tag comes from whoever calls a model: `[/b]` would end the command as markup, and a
    link or a control character would act on the terminal of whoever reads the report."""

    def render_str(self, text: str, **layout: Any) -> Text:
        shown = super().render_str("", **layout)
        return shown.append("\n".join(map(visible, text.split("\n"))))


def show_table(table: Table) -> None:
    """At its natural width, whatever the terminal's; a file or a pipe has none."""
    natural = _LiteralConsole(width=WIDEST).measure(table).maximum
    _LiteralConsole(highlight=False, width=max(natural, Console().width)).print(table, crop=False)


def visible(text: str) -> str:
    """One line, its control characters escaped."""
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)
