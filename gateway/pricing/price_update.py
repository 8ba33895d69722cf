"""Compares a catalogue with another source of prices, and appends the accepted changes."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from gateway.pricing.catalogue import ModelPrices, ModelRecord, ProviderPrices
from gateway.pricing.price_figures import figures

SETTLED = "Settled"
"""A note beginning with this word says that a person decided between sources: imports leave the record alone."""


class Kind(StrEnum):
    added = "added"
    changed = "changed"
    settled = "settled"  # differs, and stays as a person settled it
    missing = "missing"  # the source no longer lists it; it stays


@dataclass(frozen=True, slots=True)
class Change:
    """One model's difference. Only `added` and `changed` ones are written."""

    kind: Kind
    provider: str
    model: str
    before: ModelPrices | None
    after: ModelPrices | None

    @property
    def is_written(self) -> bool:
        return self.kind in (Kind.added, Kind.changed)


def compare(files: Iterable[ProviderPrices], source: Mapping[str, Mapping[str, ModelPrices]]) -> list[Change]:
    """Differences between `source` and the last record of each model, for the providers that it knows."""
    known = {file.provider: file for file in files}
    return [
        change
        for provider, models in sorted(source.items())
        for change in compare_provider(provider, known.get(provider), models)
    ]


def compare_provider(provider: str, file: ProviderPrices | None, models: Mapping[str, ModelPrices]) -> Iterator[Change]:
    records = {record.model: record for record in file.models} if file else {}
    names = {name: record for record in records.values() for name in (record.model, *record.aliases)}
    for model in sorted({*records, *models}):
        record, after = names.get(model), models.get(model)
        before = record.history[-1] if record else None
        if before is None:
            yield Change(Kind.added, provider, model, None, after)
        elif after is None:
            yield Change(Kind.missing, provider, model, before, None)
        elif not charges_alike(before, after):
            kind = Kind.settled if before.note.startswith(SETTLED) else Kind.changed
            yield Change(kind, provider, model, before, after)


def charges_alike(one: ModelPrices, other: ModelPrices) -> bool:
    """Whether two records charge the same for everything, whatever their date and source."""
    return dict(figures(one)) == dict(figures(other))


def append(
    files: Sequence[ProviderPrices], changes: Iterable[Change], *, as_of_us: int, undated_us: int
) -> list[ProviderPrices]:
    """The files that change, with one record appended for each added or changed model.

    A changed price starts on `as_of_us`, or on the source's own date if that is later than the last record; undated
    prices of the source carry `undated_us`. Raises ValueError if that would be no later than the last record: prices
    are never rewritten.
    """
    known = {file.provider: file for file in files}
    written = [change for change in changes if change.is_written]
    return [
        with_changes(known.get(provider, ProviderPrices(provider, ())), by_model, as_of_us, undated_us)
        for provider in sorted({change.provider for change in written})
        if (by_model := {change.model: change for change in written if change.provider == provider})
    ]


def with_changes(file: ProviderPrices, changes: Mapping[str, Change], as_of_us: int, undated_us: int) -> ProviderPrices:
    of_all = next((prices for record in file.models for prices in record.history), None)
    records: list[ModelRecord] = []
    seen: set[str] = set()
    for record in file.models:
        name = next((name for name in (record.model, *record.aliases) if name in changes), None)
        seen.add(name or record.model)
        change = changes.get(name or "")
        records.append(appended(record, change.after, as_of_us, undated_us) if change and change.after else record)
    for model, change in changes.items():
        if model not in seen and change.after is not None:
            records.append(ModelRecord(model, (change.after,)))
    alike = (  # terms for all of a provider's models are missing from other price lists
        replace(record, history=tuple(prices.with_terms_of(of_all) for prices in record.history))
        for record in sorted(records, key=lambda record: record.model)
    )
    return ProviderPrices(file.provider, tuple(alike))


def appended(record: ModelRecord, after: ModelPrices, as_of_us: int, undated_us: int) -> ModelRecord:
    last = record.history[-1]
    is_dated = after.from_us != undated_us and after.from_us > last.from_us
    dated = after if is_dated else replace(after, from_us=as_of_us)
    if dated.from_us <= last.from_us:
        raise ValueError(
            f"{record.model} already has a price from {last.from_date}: prices are appended, not rewritten"
        )
    return replace(record, history=(*record.history, dated))


def describe(change: Change) -> list[str]:
    """The differences in words, USD per million tokens: `input 2.5 -> 2`."""
    before = dict(figures(change.before)) if change.before else {}
    after = dict(figures(change.after)) if change.after else {}
    return [
        f"{name} {before.get(name, 'none')} -> {after.get(name, 'none')}"
        for name in sorted({*before, *after})
        if before.get(name) != after.get(name)
    ]
