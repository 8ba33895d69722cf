"""What each hosted model costs and since when: dated, append-only values. Reads no file and no clock.

Every rate is integer pico-USD per token. None means no separate price: cached, written, audio and image input then cost
as input does, 1 h writes as 5 min writes, reasoning, audio and image output as output.
"""

import hashlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from fractions import Fraction
from functools import cached_property

from gateway.instants import DAY_US, EPOCH, MINUTE_US, moment_of, start_of_day_us

FOR_EVER_US = 1 << 63
"""Later than any time."""
STANDARD_TIERS = ("", "auto", "default", "standard")
"""Names that every provider uses for its ordinary price."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Pico-USD per token of each class."""

    input: int
    output: int
    cached_input: int | None = None
    cache_write_5m: int | None = None
    cache_write_1h: int | None = None
    reasoning: int | None = None
    audio_input: int | None = None
    audio_output: int | None = None
    image_input: int | None = None
    image_output: int | None = None
    cached_audio_input: int | None = None

    @property
    def has_cache_writes(self) -> bool:
        return self.cache_write_5m is not None or self.cache_write_1h is not None

    @property
    def has_media(self) -> bool:
        media = (self.audio_input, self.image_input, self.cached_audio_input, self.audio_output, self.image_output)
        return any(rate is not None for rate in media)


@dataclass(frozen=True, slots=True)
class Step:
    """Rates of requests with more than `above_input_tokens`.

    They apply to the whole request, output included; a marginal step applies only to the input tokens beyond it.
    """

    above_input_tokens: int
    rates: Rates
    is_marginal: bool = False


@dataclass(frozen=True, slots=True)
class Ladder:
    """Rates by input length; `steps` ascend."""

    base: Rates
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True)
class Service:
    """The price of a service tier: a multiple of the ordinary price, or a price list of its own."""

    multiplier: Fraction = Fraction(1)
    ladder: Ladder | None = None


@dataclass(frozen=True, slots=True)
class Window:
    """Minutes of the UTC day, `start` inclusive and `end` exclusive, on ISO weekdays (Monday is 1)."""

    weekdays: tuple[int, ...]
    start_minute: int
    end_minute: int

    def has(self, at_us: int) -> bool:
        at = EPOCH + timedelta(microseconds=at_us)
        return at.isoweekday() in self.weekdays and self.start_minute <= at.hour * 60 + at.minute < self.end_minute

    def edges_us(self, at_us: int) -> Iterator[int]:
        """Times after `at_us`, within a week, at which it opens or closes."""
        first = at_us // DAY_US
        for day in range(first, first + 8):
            if (EPOCH + timedelta(days=day)).isoweekday() in self.weekdays:
                edges = (day * DAY_US + minute * MINUTE_US for minute in (self.start_minute, self.end_minute))
                yield from (edge for edge in edges if edge > at_us)


@dataclass(frozen=True, slots=True)
class OffPeak:
    """A cheaper price list at certain hours, and all day on certain dates (UTC)."""

    windows: tuple[Window, ...]
    ladder: Ladder
    dates: tuple[date, ...] = ()

    def has(self, at_us: int) -> bool:
        return moment_of(at_us).date() in self.dates or any(window.has(at_us) for window in self.windows)

    def edges_us(self, at_us: int) -> Iterator[int]:
        """Times after `at_us` at which it may begin or end, all those within a week among them."""
        for window in self.windows:
            yield from window.edges_us(at_us)
        for one in self.dates:
            begins_us = start_of_day_us(one)
            yield from (edge for edge in (begins_us, begins_us + DAY_US) if edge > at_us)


NO_DISCOUNT = Fraction(0)
ONE = Fraction(1)


@dataclass(frozen=True, slots=True)
class ModelPrices:
    """The prices of one model from `from_us` (microseconds since the epoch) until the next record.

    `discount` is the negotiated share off every class and fee (0.1 is 10 % less; negative is a surcharge).
    `web_search_pico_usd` and `file_search_pico_usd` are per search made by the provider; None if the price is unknown.
    Models billed by the unit have a price per image drawn, second of audio transcribed, character spoken or search unit
    (a hundred documents ranked), besides their tokens, which then mostly cost nothing. Shorter recordings are billed as
    `least_audio_milliseconds`. `per_refusal_pico_usd` is for a prompt that the provider's filter refuses. Answers in
    `unreported_tiers` do not name their tier: they are in the one asked for.
    """

    ladder: Ladder
    from_us: int
    source: str
    services: Mapping[str, Service] = field(default_factory=dict[str, Service])
    standard_tiers: tuple[str, ...] = STANDARD_TIERS
    unreported_tiers: tuple[str, ...] = ()
    per_request_pico_usd: int = 0
    per_refusal_pico_usd: int = 0
    web_search_pico_usd: int | None = None
    file_search_pico_usd: int | None = None
    per_image_pico_usd: int | None = None
    per_audio_second_pico_usd: int | None = None
    per_character_pico_usd: int | None = None
    per_search_unit_pico_usd: int | None = None
    least_audio_milliseconds: int = 0
    off_peak: OffPeak | None = None
    discount: Fraction = NO_DISCOUNT
    note: str = ""
    is_plain: bool = field(init=False, repr=False, compare=False)
    """Whether ordinary text costs each class's tokens times its rate, less the discount."""
    paid_share: Fraction = field(init=False, repr=False, compare=False)
    """What the discount leaves."""
    charges_cache_writes: bool = field(init=False, repr=False, compare=False)
    charges_media: bool = field(init=False, repr=False, compare=False)
    """Whether audio or images have a price of their own, in tokens."""

    def __post_init__(self) -> None:
        is_plain = "" not in self.services and "" in self.standard_tiers
        object.__setattr__(self, "is_plain", is_plain and not any(step.is_marginal for step in self.ladder.steps))
        object.__setattr__(self, "paid_share", ONE if self.discount is NO_DISCOUNT else 1 - self.discount)
        ladders = [self.ladder, *(one.ladder for one in self.services.values() if one.ladder is not None)]
        rates = [one for ladder in ladders for one in (ladder.base, *(step.rates for step in ladder.steps))]
        object.__setattr__(self, "charges_cache_writes", any(one.has_cache_writes for one in rates))
        object.__setattr__(self, "charges_media", any(one.has_media for one in rates))

    @property
    def rates(self) -> Rates:
        """The ordinary price of a short request."""
        return self.ladder.base

    @property
    def from_date(self) -> str:
        return moment_of(self.from_us).date().isoformat()

    def with_terms_of(self, listed: "ModelPrices | None") -> "ModelPrices":
        """Fills gaps with what the provider does for all its models: which tiers are ordinary, which it does not
        report, and prices of searches and refusals."""
        if listed is None:
            return self
        web, files = self.web_search_pico_usd, self.file_search_pico_usd
        return replace(
            self,
            standard_tiers=tuple(sorted({*self.standard_tiers, *listed.standard_tiers})),
            unreported_tiers=tuple(sorted({*self.unreported_tiers, *listed.unreported_tiers})),
            per_refusal_pico_usd=self.per_refusal_pico_usd or listed.per_refusal_pico_usd,
            web_search_pico_usd=listed.web_search_pico_usd if web is None else web,
            file_search_pico_usd=listed.file_search_pico_usd if files is None else files,
        )

    def at(self, at_us: int) -> "ModelPrices":
        """These prices with the list of that hour in force."""
        if self.off_peak is None or not self.off_peak.has(at_us):
            return self
        return replace(self, ladder=self.off_peak.ladder, off_peak=None)


@dataclass(frozen=True, slots=True)
class ModelRecord:
    """One model's whole price history, oldest first, and its aliases."""

    model: str
    history: tuple[ModelPrices, ...]
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ProviderPrices:
    """One provider's file."""

    provider: str
    models: tuple[ModelRecord, ...]


@dataclass(frozen=True, slots=True)
class Override:
    """A deployment's own terms: a discount on a provider or one of its models, or a price list of its own.

    `model` None means every model of the provider. `history` is appended to the model's record, or creates it for a
    model not in the catalogue. `from_us` dates the discount: earlier requests keep their price.
    """

    provider: str
    model: str | None = None
    discount: Fraction | None = None
    from_us: int = 0
    history: tuple[ModelPrices, ...] = ()


class PriceBook:
    """All known prices. Immutable; `version` is a hash of the content."""

    def __init__(self, files: Iterable[ProviderPrices], overrides: Iterable[Override] = ()) -> None:
        """Raises ValueError if two records of a provider share a name."""
        self._files = tuple(files)
        self._overrides = tuple(overrides)
        self._records: dict[tuple[str, str], tuple[ModelPrices, ...]] = {}
        self._names: dict[tuple[str, str], str] = {}
        for file in self._files:
            for record in file.models:
                self._add(file.provider, record)
        for override in self._overrides:
            self._found(override)

    def _add(self, provider: str, record: ModelRecord) -> None:
        for name in (record.model, *record.aliases):
            if (provider, name) in self._names:
                raise ValueError(f"{provider}: {name} is priced twice")
            self._names[provider, name] = record.model
        self._records[provider, record.model] = record.history

    def _found(self, override: Override) -> None:
        if not override.history or override.model is None:
            return
        model = self._names.setdefault((override.provider, override.model), override.model)
        known = self._records.get((override.provider, model), ())
        first = override.history[0].from_us
        agreed = (prices.with_terms_of(self._listed(override.provider, known)) for prices in override.history)
        self._records[override.provider, model] = (*(p for p in known if p.from_us < first), *agreed)

    def _listed(self, provider: str, known: Sequence[ModelPrices]) -> ModelPrices | None:
        """The model's last record, or any of the provider's: some terms in its file apply to all."""
        of_provider = (record for file in self._files if file.provider == provider for record in file.models)
        return known[-1] if known else next((record.history[-1] for record in of_provider), None)

    @cached_property
    def version(self) -> str:
        """Computed on first use: it takes longer than all the rest, and most commands never need it."""
        content = repr((sorted(self._records.items()), sorted(self._names.items()), self._discounts()))
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    def _discounts(self) -> list[tuple[str, str | None, str, int]]:
        return [(o.provider, o.model, str(o.discount), o.from_us) for o in self._overrides if o.discount is not None]

    def lookup(self, provider: str, upstream_model: str, at_us: int) -> ModelPrices | None:
        """The prices in force at `at_us`, or None if unknown, which never means free."""
        model = self._names.get((provider, upstream_model))
        if model is None:
            return None
        history = self._records[provider, model]
        index = bisect_right(history, at_us, key=lambda prices: prices.from_us)
        if index == 0:
            return None
        return self._discounted(provider, model, history[index - 1].at(at_us), at_us)

    def holds_until_us(self, provider: str, upstream_model: str, at_us: int) -> int:
        """Until when (exclusive) `lookup` surely gives the same answer as at `at_us`; FOR_EVER_US at the latest."""
        model = self._names.get((provider, upstream_model))
        if model is None:
            return FOR_EVER_US
        history = self._records[provider, model]
        dates = [prices.from_us for prices in history] + self._discount_dates(provider, model)
        index = bisect_right(history, at_us, key=lambda prices: prices.from_us)
        if index and (off_peak := history[index - 1].off_peak) is not None:
            dates += off_peak.edges_us(at_us)
        return min((one for one in dates if one > at_us), default=FOR_EVER_US)

    def _discounted(self, provider: str, model: str, prices: ModelPrices, at_us: int) -> ModelPrices:
        terms = [
            (o.from_us, index, o.discount)
            for index, o in enumerate(self._overrides)
            if o.discount is not None and o.from_us <= at_us and self._is_meant(o, provider, model)
        ]
        return replace(prices, discount=max(terms)[2]) if terms else prices

    def _discount_dates(self, provider: str, model: str) -> list[int]:
        return [o.from_us for o in self._overrides if o.discount is not None and self._is_meant(o, provider, model)]

    def _is_meant(self, override: Override, provider: str, model: str) -> bool:
        if override.model is None:
            return override.provider == provider
        return override.provider == provider and self._names.get((provider, override.model)) == model

    def with_overrides(self, overrides: Iterable[Override]) -> "PriceBook":
        """The same book under a deployment's own terms. Of several discounts the latest dated, then the last listed,
        holds."""
        return PriceBook(self._files, (*self._overrides, *overrides))

    def models(self, provider: str | None = None) -> list[tuple[str, str]]:
        """`(provider, model)` of everything priced, sorted, without aliases."""
        return sorted(key for key in self._records if provider in (None, key[0]))

    def history(self, provider: str, upstream_model: str) -> tuple[ModelPrices, ...]:
        """A model's prices, oldest first, one record from each date on which they or the discount on them change; empty
        if unknown."""
        model = self._names.get((provider, upstream_model))
        if model is None:
            return ()
        records = {prices.from_us: prices for prices in self._records[provider, model]}
        prices, found = self._records[provider, model][0], list[ModelPrices]()
        for day in sorted({*records, *self._discount_dates(provider, model)}):
            if day >= prices.from_us:
                prices = records.get(day, prices)
                found.append(self._discounted(provider, model, replace(prices, from_us=day), day))
        return tuple(found)
