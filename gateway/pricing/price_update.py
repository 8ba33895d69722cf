"""Compares a catalogue with another source of prices, and appends the accepted changes."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from gateway.pricing.catalogue import Ladder, ModelPrices, ModelRecord, ProviderPrices, Rates
from gateway.pricing.price_figures import figures

CLASSES = {
    "cached_input": "input",
    "cache_write_5m": "input",
    "cache_write_1h": "cache_write_5m",
    "reasoning": "output",
    "audio_input": "input",
    "audio_output": "output",
    "image_input": "input",
    "image_output": "output",
    "cached_audio_input": "cached_input",
}
"""Token classes, and as what each costs if it is left out."""
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


def compare(
    files: Iterable[ProviderPrices], source: Mapping[str, Mapping[str, ModelPrices]], *, at_us: int
) -> list[Change]:
    """Differences between `source` and each model's record in force at `at_us`, for the providers that it knows."""
    known = {file.provider: file for file in files}
    return [
        change
        for provider, models in sorted(source.items())
        for change in compare_provider(provider, known.get(provider), models, at_us)
    ]


def compare_provider(
    provider: str, file: ProviderPrices | None, models: Mapping[str, ModelPrices], at_us: int
) -> Iterator[Change]:
    records = {record.model: record for record in file.models} if file else {}
    names = {name: record for record in records.values() for name in (record.model, *record.aliases)}
    tiers, classes = told_by(models.values())
    for model in sorted({*records, *models}):
        record, after = names.get(model), models.get(model)
        before = in_force(record, at_us) if record else None
        if before is not None and after is not None:
            after = with_untold(before, after, tiers, classes)
        if before is None:
            yield Change(Kind.added, provider, model, None, after)
        elif after is None:
            yield Change(Kind.missing, provider, model, before, None)
        elif not charges_alike(before, after):
            kind = Kind.settled if before.note.startswith(SETTLED) else Kind.changed
            yield Change(kind, provider, model, before, after)


def in_force(record: ModelRecord, at_us: int) -> ModelPrices:
    """The record's prices at `at_us`, not those announced for later; its first if none has begun."""
    return next((prices for prices in reversed(record.history) if prices.from_us <= at_us), record.history[0])


def told_by(source: Iterable[ModelPrices]) -> tuple[set[str], set[str]]:
    """The service tiers and token classes that a source prices for any of a provider's models."""
    told = list(source)
    tiers = {tier for prices in told for tier in prices.services}
    return tiers, {name for prices in told for name in CLASSES if getattr(prices.rates, name) is not None}


def with_untold(before: ModelPrices, after: ModelPrices, tiers: set[str], classes: set[str]) -> ModelPrices:
    """What a source tells of none of a provider's models, it does not know: a tier's surcharge stays, and so does the
    price of a class for as long as the input costs the same. Nor does it know dates that are off-peak."""
    kept = {name: one for name, one in before.services.items() if name not in tiers and one.ladder is None}
    steps = {step.above_input_tokens: step.rates for step in before.ladder.steps}

    def filled(old: Rates | None, new: Rates) -> Rates:
        if old is None or old.input != new.input:
            return new
        return replace(new, **{name: getattr(old, name) for name in CLASSES if name not in classes})

    ladder = Ladder(
        filled(before.rates, after.rates),
        tuple(
            replace(step, rates=filled(steps.get(step.above_input_tokens), step.rates)) for step in after.ladder.steps
        ),
    )
    off_peak = after.off_peak
    if off_peak is not None and before.off_peak is not None:
        off_peak = replace(off_peak, dates=off_peak.dates or before.off_peak.dates)
    return replace(after, ladder=ladder, services={**after.services, **kept}, off_peak=off_peak)


def charges_alike(one: ModelPrices, other: ModelPrices) -> bool:
    """Whether two records charge the same for everything, whatever their date and source."""
    return dict(figures(without_defaults(one))) == dict(figures(without_defaults(other)))


def without_defaults(prices: ModelPrices) -> ModelPrices:
    """Without the classes that cost what they would if they were left out."""
    services = {
        name: one if one.ladder is None else replace(one, ladder=plainer(one.ladder))
        for name, one in prices.services.items()
    }
    return replace(prices, ladder=plainer(prices.ladder), services=services)


def plainer(ladder: Ladder) -> Ladder:
    def plain(rates: Rates) -> Rates:
        defaults = {name: getattr(rates, whole) for name, whole in CLASSES.items()}
        return replace(rates, **{name: None for name in CLASSES if getattr(rates, name) == defaults[name]})

    return Ladder(plain(ladder.base), tuple(replace(step, rates=plain(step.rates)) for step in ladder.steps))


def append(
    files: Sequence[ProviderPrices], changes: Iterable[Change], *, as_of_us: int, undated_us: int
) -> list[ProviderPrices]:
    """The files that change, with one record appended for each added or changed model.

    A changed price starts on `as_of_us`, or on the source's own date if that is later than the record in force; undated
    prices of the source carry `undated_us`. It ends where one begins that was announced. Raises ValueError if there is
    a record of that day, or of a later one in force: prices are never rewritten.
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
    last = in_force(record, as_of_us)
    is_dated = after.from_us != undated_us and after.from_us > last.from_us
    dated = after if is_dated else replace(after, from_us=as_of_us)
    if dated.from_us <= last.from_us or any(prices.from_us == dated.from_us for prices in record.history):
        raise ValueError(
            f"{record.model} already has a price from {max(last.from_date, dated.from_date)}: prices are appended, not "
            "rewritten"
        )
    return replace(record, history=tuple(sorted((*record.history, dated), key=lambda prices: prices.from_us)))


def describe(change: Change) -> list[str]:
    """The differences in words, USD per million tokens: `input 2.5 -> 2`."""
    before = dict(figures(change.before)) if change.before else {}
    after = dict(figures(change.after)) if change.after else {}
    return [
        f"{name} {before.get(name, 'none')} -> {after.get(name, 'none')}"
        for name in sorted({*before, *after})
        if before.get(name) != after.get(name)
    ]
