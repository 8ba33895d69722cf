"""Limits how many different tag sets per key and day are booked: a unique tag per request would make the sums as long
as the list of requests. Decisions see every tag. Reads no clock; knows no storage."""

import logging
from collections.abc import Callable, Collection

from gateway.instants import DAY_US

log = logging.getLogger(__name__)
OTHER = "(other)"
MOST_A_DAY = 300
"""Different sets of tags per key and process."""


class TagBound:
    """Remembers which sets of tags each key sent on the current UTC day."""

    def __init__(self, most: int = MOST_A_DAY) -> None:
        self._most = most
        self._day = 0
        self._seen: dict[str, set[tuple[str, ...]]] = {}

    def booked(
        self, key_id: str, tags: tuple[str, ...], at_us: int, kept: Callable[[], Collection[str]]
    ) -> tuple[str, ...]:
        """The tags to book for a request: once a key has sent too many sets, only those in `kept()`, and OTHER.

        `kept` returns tags that a decision may depend on, which is needed to replay it from the ledger.
        """
        if not tags:
            return tags
        if at_us // DAY_US > self._day:  # a clock set back does not start a day again
            self._day, self._seen = at_us // DAY_US, {}
        seen, one = self._seen.setdefault(key_id, set()), tuple(sorted(set(tags)))
        if one in seen:
            return tags
        if len(seen) < self._most:
            seen.add(one)
            if len(seen) == self._most:
                log.warning(
                    "key %s has sent %d different sets of tags today: further ones are booked as %r, so that the sums "
                    "do not grow by a row for each request; use x-breakeven-tags for what costs are grouped by, not "
                    "for ids",
                    key_id, self._most, OTHER,
                )  # fmt: skip
            return tags
        named = kept()
        return (*(tag for tag in one if tag in named), OTHER)
