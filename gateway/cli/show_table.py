"""Prints a table of figures whole: a terminal that is too narrow wraps its lines, and no digit is cut off."""

from rich.console import Console
from rich.table import Table

WIDEST = 1000


def show_table(table: Table) -> None:
    """At its natural width, whatever the terminal's is; a file or a pipe has none."""
    natural = Console(width=WIDEST).measure(table).maximum
    Console(highlight=False, width=max(natural, Console().width)).print(table, crop=False)
