"""Prints a table of figures in full: a narrow terminal wraps its lines, and no digit is cut off."""

from rich.console import Console
from rich.table import Table

WIDEST = 1000


def show_table(table: Table) -> None:
    """At its natural width, whatever the terminal's; a file or a pipe has none."""
    natural = Console(width=WIDEST).measure(table).maximum
    Console(highlight=False, width=max(natural, Console().width)).print(table, crop=False)
