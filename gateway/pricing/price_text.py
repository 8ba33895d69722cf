"""Parses price files: strict YAML whose every error names file, line and field. Opens no file.

Prices are decimal text in USD per million tokens. YAML's number types are switched off, so that no price ever passes
through a float.
"""

from datetime import date
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from gateway.instants import start_of_day_us
from gateway.money import PICO_PER_TOKEN_AT_USD_PER_MTOK, parse_usd
from gateway.pricing.catalogue import (
    STANDARD_TIERS,
    Ladder,
    ModelPrices,
    ModelRecord,
    OffPeak,
    Override,
    ProviderPrices,
    Rates,
    Service,
    Step,
    Window,
)
from gateway.strict import Strict
from gateway.yaml_document import validate_yaml


def whole_pico(usd_per_mtok: Decimal) -> Decimal:
    pico = usd_per_mtok * PICO_PER_TOKEN_AT_USD_PER_MTOK
    if pico != pico.to_integral_value():
        raise ValueError(f"{usd_per_mtok} USD per million tokens is finer than one pico-dollar per token")
    return usd_per_mtok


def whole_pico_usd(usd: Decimal) -> Decimal:
    parse_usd(usd)
    return usd


def clock(text: str) -> int:
    hours, colon, minutes = text.partition(":")
    if not (
        colon and hours.isdigit() and minutes.isdigit() and int(minutes) < 60 and int(hours) * 60 + int(minutes) <= 1440
    ):
        raise ValueError(f"{text!r} is not an hour such as 06:30 (24:00 is the end of the day)")
    return int(hours) * 60 + int(minutes)


Price = Annotated[Decimal, Field(ge=0, lt=1_000_000), AfterValidator(whole_pico)]
Fee = Annotated[Decimal, Field(ge=0, lt=1_000_000), AfterValidator(whole_pico_usd)]
MinuteOfDay = Annotated[int, BeforeValidator(clock)]
Name = Annotated[str, Field(min_length=1)]
SERVICES = ("batch", "flex", "priority", "ultrafast", "fast", "us")
"""Service tiers that a record may price; fields of PricesText."""


class RatesText(Strict):
    """USD per million tokens; omitted classes cost as their plain class does."""

    input: Price
    output: Price
    cached_input: Price | None = None
    cache_write_5m: Price | None = None
    cache_write_1h: Price | None = None
    reasoning: Price | None = None
    audio_input: Price | None = None
    audio_output: Price | None = None
    image_input: Price | None = None
    image_output: Price | None = None
    cached_audio_input: Price | None = None

    def rates(self) -> Rates:
        prices = {name: getattr(self, name) for name in RatesText.model_fields}
        return Rates(**{name: per_token(price) for name, price in prices.items() if price is not None})


class StepText(RatesText):
    above_input_tokens: Annotated[int, Field(ge=1)]
    marginal: bool = False


class LadderText(RatesText):
    above: tuple[StepText, ...] = ()

    @model_validator(mode="after")
    def _ascends(self) -> "LadderText":
        limits = [step.above_input_tokens for step in self.above]
        if limits != sorted(set(limits)):
            raise ValueError("the steps under `above` must ascend")
        return self

    def ladder(self) -> Ladder:
        steps = (Step(step.above_input_tokens, step.rates(), step.marginal) for step in self.above)
        return Ladder(self.rates(), tuple(steps))


class ServiceText(Strict):
    """Either a multiple of the ordinary price or a price list of its own."""

    multiplier: Annotated[Decimal, Field(ge=0, le=100)] | None = None
    prices: LadderText | None = None

    @model_validator(mode="after")
    def _one_of_them(self) -> "ServiceText":
        if (self.multiplier is None) == (self.prices is None):
            raise ValueError("give either `multiplier` or `prices`")
        return self

    def service(self) -> Service:
        if self.prices is not None:
            return Service(ladder=self.prices.ladder())
        return Service(multiplier=Fraction(self.multiplier or 0))


class WindowText(Strict):
    weekdays: tuple[Annotated[int, Field(ge=1, le=7)], ...]
    start: MinuteOfDay
    end: MinuteOfDay

    def window(self) -> Window:
        return Window(tuple(sorted(self.weekdays)), self.start, self.end)


class OffPeakText(Strict):
    windows_utc: tuple[WindowText, ...]
    dates_utc: tuple[date, ...] = ()
    prices: LadderText

    def off_peak(self) -> OffPeak:
        windows = tuple(window.window() for window in self.windows_utc)
        return OffPeak(windows, self.prices.ladder(), tuple(sorted(self.dates_utc)))


class PricesText(LadderText):
    """One dated record."""

    from_: Annotated[date, Field(alias="from")]
    source: Name
    note: str = ""
    per_request_usd: Fee = Decimal(0)
    web_search_usd: Fee | None = None
    file_search_usd: Fee | None = None
    per_image_usd: Fee | None = None
    per_audio_second_usd: Fee | None = None
    per_character_usd: Fee | None = None
    per_search_unit_usd: Fee | None = None
    least_audio_seconds: Annotated[int, Field(ge=0, le=3600)] = 0
    batch: ServiceText | None = None
    flex: ServiceText | None = None
    priority: ServiceText | None = None
    ultrafast: ServiceText | None = None
    fast: ServiceText | None = None
    us: ServiceText | None = None
    off_peak: OffPeakText | None = None

    def prices(self, file: "FileText | None" = None) -> ModelPrices:
        """The prices, with defaults that `file` gives for all its models."""
        services: dict[str, ServiceText | None] = {name: getattr(self, name) for name in SERVICES}
        return ModelPrices(
            ladder=self.ladder(),
            from_us=start_of_day_us(self.from_),
            source=self.source,
            services={name: text.service() for name, text in services.items() if text is not None},
            standard_tiers=tuple(sorted({*STANDARD_TIERS, *(file.standard_tiers if file else ())})),
            unreported_tiers=tuple(sorted(file.unreported_tiers)) if file else (),
            per_request_pico_usd=parse_usd(self.per_request_usd),
            per_refusal_pico_usd=parse_usd(file.per_refusal_usd) if file else 0,
            web_search_pico_usd=fee(self.web_search_usd, file.web_search_usd if file else None),
            file_search_pico_usd=fee(self.file_search_usd, file.file_search_usd if file else None),
            per_image_pico_usd=fee(self.per_image_usd),
            per_audio_second_pico_usd=fee(self.per_audio_second_usd),
            per_character_pico_usd=fee(self.per_character_usd),
            per_search_unit_pico_usd=fee(self.per_search_unit_usd),
            least_audio_milliseconds=self.least_audio_seconds * 1000,
            off_peak=self.off_peak.off_peak() if self.off_peak else None,
            note=self.note,
        )


def fee(own: Decimal | None, everywhere: Decimal | None = None) -> int | None:
    """The record's own fee, or else the file's."""
    said = everywhere if own is None else own
    return None if said is None else parse_usd(said)


def ascending(history: tuple[PricesText, ...]) -> tuple[PricesText, ...]:
    dates = [record.from_ for record in history]
    if not dates:
        raise ValueError("at least one record is needed")
    if dates != sorted(set(dates)):
        raise ValueError("records must be appended: each `from` later than the one before")
    return history


History = Annotated[tuple[PricesText, ...], AfterValidator(ascending)]


class ModelText(Strict):
    aliases: tuple[Name, ...] = ()
    prices: History


class FileText(Strict):
    """A provider's price file. `standard_tiers` names service tiers billed at the ordinary price, `unreported_tiers`
    those that no answer names; `web_search_usd` and `file_search_usd` are per search, unless a record says otherwise;
    `per_refusal_usd` is for a prompt that its filter refuses.
    """

    provider: Name
    standard_tiers: tuple[Name, ...] = ()
    unreported_tiers: tuple[Name, ...] = ()
    per_refusal_usd: Fee = Decimal(0)
    web_search_usd: Fee | None = None
    file_search_usd: Fee | None = None
    models: dict[Name, ModelText]


class OverrideText(Strict):
    provider: Name
    model: Name | None = None
    discount: Annotated[Decimal, Field(ge=-10, le=1)] | None = None
    from_: Annotated[date | None, Field(alias="from")] = None
    prices: History | None = None

    @model_validator(mode="after")
    def _says_something(self) -> "OverrideText":
        if self.discount is None and self.prices is None:
            raise ValueError("give `discount`, `prices` or both")
        if self.prices is not None and self.model is None:
            raise ValueError("`prices` needs a `model`")
        return self

    def override(self) -> Override:
        return Override(
            provider=self.provider,
            model=self.model,
            discount=None if self.discount is None else Fraction(self.discount),
            from_us=start_of_day_us(self.from_) if self.from_ else 0,
            history=tuple(record.prices() for record in self.prices or ()),
        )


class OverridesText(Strict):
    overrides: tuple[OverrideText, ...]


@lru_cache(maxsize=64)
def parse_prices(text: str, name: str) -> ProviderPrices:
    """A provider's price file. `name` is what errors call it. Raises ConfigurationError.

    Cached, as parsing the shipped files takes a sixth of a second.
    """
    file = validate_yaml(FileText, text, name)
    records = (
        ModelRecord(model, tuple(record.prices(file) for record in entry.prices), entry.aliases)
        for model, entry in file.models.items()
    )
    return ProviderPrices(file.provider, tuple(records))


def parse_overrides(text: str, name: str) -> tuple[Override, ...]:
    """A deployment's own terms. Raises ConfigurationError."""
    return tuple(entry.override() for entry in validate_yaml(OverridesText, text, name).overrides)


def per_token(usd_per_mtok: Decimal) -> int:
    """USD per million tokens to pico-USD per token; exact, because whole_pico() was checked."""
    return int(usd_per_mtok * PICO_PER_TOKEN_AT_USD_PER_MTOK)
