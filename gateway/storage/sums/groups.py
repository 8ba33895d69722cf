"""Groups of sums as they accumulate, from rows that the database added up or from columns. Knows no SQL."""

import json
from collections.abc import Sequence
from operator import add, itemgetter

from gateway.storage.sums.by_dimension import Group, Known, SpanSums, grouped
from gateway.storage.sums.corrections import Totals
from gateway.storage.sums.filters import COLUMNS
from gateway.storage.sums.joined_sketches import grow, percentile
from gateway.storage.sums.periods import Calendar
from gateway.storage.sums.rollup import SKETCHES, SUMS
from gateway.storage.sums.sum_rows import BY_STATUS
from gateway.sums import TIMES, Latencies, Sums, SumsQuery, TooManyGroups

NUMBERS = (*SUMS, *BY_STATUS)
_fields = Sums.__struct_fields__[1:-1]
assert sorted(_fields) == sorted(NUMBERS)
_as_fields = itemgetter(*map(NUMBERS.index, _fields))
"""Reorders a group's numbers from NUMBERS to the fields of Sums."""


class Groups:
    """The groups of several queries of the same rows. Whatever adds to them raises TooManyGroups."""

    def __init__(self, queries: Sequence[SumsQuery], calendar: Calendar) -> None:
        self.calendar = calendar
        self._of_queries = [_Groups(query, calendar) for query in queries]

    def add(self, at_us: int | None, row: Totals) -> None:
        numbers = tuple(int(row.get(name) or 0) for name in NUMBERS)
        for one in self._of_queries:
            one.add(at_us, row, numbers)

    def add_columns(self, sums: SpanSums, known: Known) -> None:
        for one in self._of_queries:
            one.add_columns(sums, known)

    def add_sketches(self, at_us: int | None, row: Totals) -> None:
        """Only to queries with latencies."""
        for one in self._of_queries:
            if one.query.with_latencies:
                one.add_sketches(at_us, row)

    def ordered(self) -> list[list[Sums]]:
        """Each query's, sorted by the groups' values. They are given away, as there may be hundreds of thousands."""
        return [one.ordered() for one in self._of_queries]


class _Groups:
    """The groups of one query, as they accumulate."""

    def __init__(self, query: SumsQuery, calendar: Calendar) -> None:
        self.query = query
        self._calendar = calendar
        self._sums: dict[Group, tuple[int, ...]] = {}
        self._sketches: dict[Group, tuple[bytearray, ...]] = {}

    def add(self, at_us: int | None, row: Totals, numbers: tuple[int, ...]) -> None:
        """`numbers` are those of `row`, in the order of NUMBERS."""
        for values in self._groups_of(at_us, row):
            self._add_to(values, numbers)
        self._refuse_too_many()

    def add_columns(self, sums: SpanSums, known: Known) -> None:
        for values, numbers in grouped(sums, known, self.query.by, NUMBERS):
            self._add_to(values, numbers)
        self._refuse_too_many()

    def _add_to(self, values: Group, numbers: tuple[int, ...]) -> None:
        present = self._sums.get(values)
        self._sums[values] = numbers if present is None else tuple(map(add, present, numbers))

    def _refuse_too_many(self) -> None:
        if self.query.most_groups is not None and len(self._sums) > self.query.most_groups:
            raise TooManyGroups

    def add_sketches(self, at_us: int | None, row: Totals) -> None:
        for values in self._groups_of(at_us, row):
            kept = self._sketches.setdefault(values, (bytearray(), bytearray()))
            for whole, name in zip(kept, SKETCHES, strict=True):
                grow(whole, row[name] or b"")

    def _groups_of(self, at_us: int | None, row: Totals) -> list[Group]:
        """The row's group, or one per tag."""
        found: list[Group] = [()]
        for name in self.query.by:
            if name in TIMES:
                values: list[str | None] = [self._calendar.label(name, at_us or 0)]
            elif name == "tag":
                values = list(json.loads(row["tags"])) or [None]
            elif name == "is_simulated":
                values = ["true" if row["is_simulated"] else "false"]
            else:
                values = [row[COLUMNS[name]]]
            found = [(*group, value) for group in found for value in values]
        return found

    def ordered(self) -> list[Sums]:
        has_none = any(None in values for values in self._sums)
        return [self._one(values) for values in sorted(self._sums, key=_none_first if has_none else None)]

    def _one(self, values: Group) -> Sums:
        latencies = self._latencies(values) if self.query.with_latencies else None
        numbers = self._sums.pop(values)
        return Sums(dict(zip(self.query.by, values, strict=True)), *_as_fields(numbers), latencies=latencies)

    def _latencies(self, values: Group) -> Latencies:
        first, decode = map(bytes, self._sketches.get(values, (b"", b"")))
        return Latencies(
            percentile(first, 0.5),
            percentile(first, 0.95),
            percentile(first, 0.99),
            percentile(decode, 0.5),
            percentile(decode, 0.05),
        )


def _none_first(values: Group) -> tuple[tuple[bool, str], ...]:
    return tuple((value is not None, value or "") for value in values)
