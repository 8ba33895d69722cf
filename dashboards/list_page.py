"""Which of many keys or budgets a page shows. Pure; knows no page."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

MOST = 50
LONGEST_FIND = 200
LAST = 10**6
"""More pages than anybody goes through."""


@dataclass(frozen=True, slots=True)
class ListPage:
    """One page of the items that match. `page` counts from 1."""

    shown: Sequence[dict[str, Any]]
    matching: int
    page: int

    @property
    def pages(self) -> int:
        return pages_of(self.matching)

    @property
    def range_text(self) -> str:
        first = (self.page - 1) * MOST
        return f"{first + 1:,} to {first + len(self.shown):,} of {self.matching:,}"

    def links(self, before: str, after: str, address: Callable[[int], str]) -> str:
        """Links to the previous and the next page, if there are any."""
        sides = ((before, self.page - 1), (after, self.page + 1))
        there = [(name, address(page)) for name, page in sides if 1 <= page <= self.pages]
        return "".join(f' <a href="{escape(href)}">{name}</a>' for name, href in there)


def pages_of(matching: int, size: int = MOST) -> int:
    """The number of pages, at least one."""
    return max(1, -(-matching // size))


def page_number(asked: str | None) -> int:
    """The page that an address asks for; the first if it asks for none."""
    is_number = asked is not None and asked.isdecimal() and len(asked) < len(str(LAST))
    return max(1, int(asked)) if is_number and asked else 1


def typed_find(query: Callable[[str], str | None]) -> str:
    """What the address says to look for; empty for everything."""
    return (query("find") or "")[:LONGEST_FIND].strip()


def query_of(find: str, page: int) -> dict[str, object]:
    """What the gateway is asked for this page."""
    return {"find": find or None, "limit": MOST, "offset": (page - 1) * MOST}
