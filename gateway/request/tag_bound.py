"""How many different tags of its callers one key's books take in a day: a value of its own for every request would make
the sums as long as the requests. Decisions see every tag. Reads no clock; knows no storage."""

import logging
from collections.abc import Callable, Collection

from gateway.instants import DAY_US

log = logging.getLogger(__name__)
OTHER = "(other)"
MOST_A_DAY = 300
"""Sets of tags, of one key in one process."""


class TagBound:
    """Remembers which sets of tags came with requests of each key on one UTC day."""

    def __init__(self, most: int = MOST_A_DAY) -> None:
        self._most = most
        self._day = 0
        self._seen: dict[str, set[tuple[str, ...]]] = {}

    def booked(
        self, key_id: str, tags: tuple[str, ...], at_us: int, kept: Callable[[], Collection[str]]
    ) -> tuple[str, ...]:
        """What of a request's tags the books take: once a key has brought too many sets, those `kept` and OTHER.

        `kept` are those that a decision may depend on: it must be replayed from the books.
        """
        if not tags:
            return tags
        if at_us // DAY_US > self._day:  # a clock that is put back gives no second day
            self._day, self._seen = at_us // DAY_US, {}
        seen, one = self._seen.setdefault(key_id, set()), tuple(sorted(set(tags)))
        if one in seen:
            return tags
        if len(seen) < self._most:
            seen.add(one)
            if len(seen) == self._most:
                log.warning(
                    "key %s has sent %d different sets of tags today: further ones are booked as %r, so that the sums "
                    "do not grow by a row for each request; x-breakeven-tags is for what costs are grouped by, and "
                    "not for ids",
                    key_id, self._most, OTHER,
                )  # fmt: skip
            return tags
        named = kept()
        return (*(tag for tag in one if tag in named), OTHER)
