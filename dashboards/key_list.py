"""Which of many keys a page shows: those that match what was searched for, so many at a time. Pure; knows no page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MOST = 50


@dataclass(frozen=True, slots=True)
class KeyList:
    """One page of the keys that match. `page` counts from 1."""

    shown: Sequence[Mapping[str, Any]]
    matching: int
    page: int

    @property
    def pages(self) -> int:
        return max(1, -(-self.matching // MOST))

    @property
    def range_text(self) -> str:
        first = (self.page - 1) * MOST
        return f"{first + 1:,} to {first + len(self.shown):,} of {self.matching:,}"


def listed(keys: Sequence[Mapping[str, Any]], *, find: str | None, page: str | None) -> KeyList:
    """Every word of `find` must be in a key's name, id, role, team, project or tags. Of pages the nearest there is."""
    words = (find or "").casefold().split()
    matching = [one for one in keys if all(word in _text(one) for word in words)]
    last = max(1, -(-len(matching) // MOST))
    number = min(last, max(1, int(page))) if page is not None and page.isdecimal() else 1
    return KeyList(matching[(number - 1) * MOST : number * MOST], len(matching), number)


def _text(key: Mapping[str, Any]) -> str:
    parts = (key["name"], key["id"], key["role"], key["team"] or "", key["project"] or "", *key["tags"])
    return "\n".join(parts).casefold()
