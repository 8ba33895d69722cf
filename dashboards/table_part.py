"""Which part of a long table is shown, as the address names it: `page=2`. Pure."""

from dataclasses import dataclass

from dashboards.list_page import page_number, pages_of

ROWS = 500
"""Per part."""


@dataclass(frozen=True, slots=True)
class TablePart:
    """One part of a table of so many rows; `number` counts from 1. A table without rows has one part."""

    number: int
    rows: int

    @property
    def last_number(self) -> int:
        return pages_of(self.rows, ROWS)

    @property
    def shown(self) -> slice:
        return slice((self.number - 1) * ROWS, self.number * ROWS)

    @property
    def phrase(self) -> str:
        """`501 to 1,000 of 3,000`."""
        return f"{self.shown.start + 1:,} to {min(self.shown.stop, self.rows):,} of {self.rows:,}"

    def neighbours(self) -> list[tuple[str, str | None]]:
        """Labels of the previous and the next part, and how an address names each; None is the first part."""
        before = [("Previous", None if self.number == 2 else str(self.number - 1))] if self.number > 1 else []
        return [*before, *([("Next", str(self.number + 1))] if self.number < self.last_number else [])]


def parse_part(text: str | None, rows: int) -> TablePart:
    """The first part if the text is no number; the last if the number is beyond it."""
    return TablePart(min(page_number(text), pages_of(rows, ROWS)), rows)
