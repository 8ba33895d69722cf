from dataclasses import replace
from datetime import date
from fractions import Fraction

import pytest

from gateway.instants import MINUTE_US
from gateway.pricing.catalogue import FOR_EVER_US, Ladder, ModelRecord, OffPeak, Override, PriceBook, Rates, Window
from tests.unit.gateway.pricing.builders import at, make_file, make_prices

JUNE, JULY, AUGUST = at("2026-06-01"), at("2026-07-01"), at("2026-08-01")
OLD, NEW = make_prices(Rates(2, 4), from_us=JUNE), make_prices(Rates(1, 2), from_us=AUGUST)
BOOK = PriceBook([make_file(ModelRecord("large", (OLD, NEW), ("large-0601",)))])


@pytest.mark.parametrize(
    ("at_us", "expected"),
    [(JUNE - 1, None), (JUNE, OLD), (JULY, OLD), (AUGUST - 1, OLD), (AUGUST, NEW), (at("2030-01-01"), NEW)],
)
def test_the_price_of_the_day_holds(at_us: int, expected: object) -> None:
    assert BOOK.lookup("acme", "large", at_us) == expected


def test_an_alias_is_the_same_model() -> None:
    assert BOOK.lookup("acme", "large-0601", JULY) == OLD
    assert BOOK.models() == [("acme", "large")]
    assert BOOK.history("acme", "large-0601") == (OLD, NEW)


@pytest.mark.parametrize(("provider", "model"), [("acme", "small"), ("other", "large")])
def test_an_unknown_price_is_none_and_never_zero(provider: str, model: str) -> None:
    assert BOOK.lookup(provider, model, JULY) is None
    assert BOOK.history(provider, model) == ()


def test_a_name_may_be_priced_only_once() -> None:
    with pytest.raises(ValueError, match="large is priced twice"):
        PriceBook([make_file(ModelRecord("large", (OLD,)), ModelRecord("other", (OLD,), ("large",)))])


def test_the_version_follows_the_content() -> None:
    same = PriceBook([make_file(ModelRecord("large", (OLD, NEW), ("large-0601",)))])
    assert same.version == BOOK.version
    assert PriceBook([make_file(ModelRecord("large", (OLD,), ("large-0601",)))]).version != BOOK.version
    assert BOOK.with_overrides([Override("acme", discount=Fraction(1, 10))]).version != BOOK.version


def test_the_version_is_the_same_in_every_process() -> None:
    """Compared with a literal: if the hash depended on the process, replay would reject its own ledger."""
    assert BOOK.version == "9c34a099ebd695cb"


def test_a_discount_holds_from_its_date_for_the_provider() -> None:
    book = BOOK.with_overrides([Override("acme", discount=Fraction(1, 10), from_us=JULY)])
    assert book.lookup("acme", "large", JULY - 1) == OLD
    assert book.lookup("acme", "large", JULY) == replace(OLD, discount=Fraction(1, 10))
    assert BOOK.lookup("acme", "large", JULY) == OLD
    tenth = Fraction(1, 10)
    assert book.history("acme", "large") == (
        OLD,
        replace(OLD, from_us=JULY, discount=tenth),
        replace(NEW, discount=tenth),
    )
    always = BOOK.with_overrides([Override("acme", discount=tenth)])
    assert always.history("acme", "large") == (replace(OLD, discount=tenth), replace(NEW, discount=tenth))


@pytest.mark.parametrize("named", ["large", "large-0601"])
def test_the_latest_discount_that_names_the_model_or_its_provider_holds(named: str) -> None:
    book = BOOK.with_overrides(
        [
            Override("acme", named, discount=Fraction(1, 2), from_us=JULY),
            Override("acme", discount=Fraction(1, 10)),
            Override("other", discount=Fraction(1, 4), from_us=AUGUST),
            Override("acme", "small", discount=Fraction(1, 5), from_us=AUGUST),
        ]
    )
    found = book.lookup("acme", "large", AUGUST)
    assert found is not None
    assert found.discount == Fraction(1, 2)


def test_a_deployment_appends_its_own_price() -> None:
    agreed = make_prices(Rates(1, 3), from_us=JULY)
    book = BOOK.with_overrides([Override("acme", "large-0601", history=(agreed,))])
    assert book.lookup("acme", "large", JULY - 1) == OLD
    assert book.lookup("acme", "large", AUGUST) == agreed


def test_a_deployment_founds_a_model_that_the_catalogue_lacks() -> None:
    own = make_prices(Rates(5, 5), from_us=JUNE)
    book = BOOK.with_overrides([Override("vllm", "llama", history=(own,), discount=Fraction(0))])
    assert book.lookup("vllm", "llama", JULY) == own
    assert book.models("vllm") == [("vllm", "llama")]


def test_an_agreed_price_leaves_what_the_provider_does_for_all_its_models() -> None:
    """Its name for the ordinary tier, and its search fee: without them such requests had no price. And what it does not
    report: without that a dearer tier had the ordinary price."""
    listed = replace(
        OLD,
        standard_tiers=("", "default", "priority"),
        unreported_tiers=("flex",),
        per_refusal_pico_usd=5,
        web_search_pico_usd=7,
        file_search_pico_usd=3,
    )
    agreed = replace(make_prices(Rates(1, 3), from_us=JULY), file_search_pico_usd=2)
    founded = make_prices(Rates(1, 1), from_us=JUNE)
    terms = [Override("acme", "large", history=(agreed,)), Override("acme", "new", history=(founded,))]
    book = PriceBook([make_file(ModelRecord("large", (listed,)))], terms)
    for model, files in (("large", 2), ("new", 3)):
        found = book.lookup("acme", model, AUGUST)
        assert found is not None
        assert "priority" in found.standard_tiers
        assert (found.unreported_tiers, found.per_refusal_pico_usd) == (("flex",), 5)
        assert (found.web_search_pico_usd, found.file_search_pico_usd) == (7, files)


MONDAY_NIGHT = Window((1,), 60, 120)


@pytest.mark.parametrize(
    ("time", "cached"),
    [
        ("2026-11-16T00:59:59", 2),
        ("2026-11-16T01:00", 1),
        ("2026-11-16T01:59:59", 1),
        ("2026-11-16T02:00", 2),
        ("2026-11-17T01:30", 2),
        ("2027-02-08T23:59:59", 1),
        ("2027-02-09", 2),
    ],
)
def test_the_hour_sets_the_price(time: str, cached: int) -> None:
    off_peak = OffPeak((MONDAY_NIGHT,), Ladder(Rates(1, 2)), (date(2027, 2, 8),))
    book = PriceBook([make_file(ModelRecord("large", (make_prices(Rates(2, 4), from_us=JUNE, off_peak=off_peak),)))])
    found = book.lookup("acme", "large", at(time))
    assert found is not None
    assert found.rates.input == cached


def test_a_record_says_its_date_and_short_price() -> None:
    assert (OLD.from_date, OLD.rates) == ("2026-06-01", Rates(2, 4))


HALF_PRICE = (
    Override("acme", discount=Fraction(1, 2), from_us=JULY),
    Override("other", discount=Fraction(1, 2), from_us=JUNE + 1),
)


@pytest.mark.parametrize(
    ("at_us", "until_us"),
    [(0, JUNE), (JUNE - 1, JUNE), (JUNE, JULY), (JULY - 1, JULY), (JULY, AUGUST), (AUGUST, FOR_EVER_US)],
)
def test_a_price_holds_until_the_next_date_that_is_about_it(at_us: int, until_us: int) -> None:
    assert BOOK.with_overrides(HALF_PRICE).holds_until_us("acme", "large-0601", at_us) == until_us


def test_what_has_no_price_never_gets_another() -> None:
    assert BOOK.with_overrides(HALF_PRICE).holds_until_us("acme", "small", JUNE) == FOR_EVER_US


def test_off_peak_hours_end_a_price_at_their_minute() -> None:
    """Nights of Friday (5) and Saturday, and a holiday; 5 June 2026 is a Friday. Every change within two weeks is
    predicted."""
    nights = (Window((5, 6), 22 * 60 + 30, 24 * 60), Window((6,), 0, 6 * 60))
    cheap = replace(OLD, off_peak=OffPeak(nights, Ladder(Rates(1, 1)), (date(2026, 6, 9),)))
    book = PriceBook([make_file(ModelRecord("large", (cheap,)))])
    minutes = range(at("2026-06-04"), at("2026-06-18"), MINUTE_US)
    prices = [book.lookup("acme", "large", minute) for minute in minutes]
    changes = [minutes[n] for n in range(1, len(prices)) if prices[n] != prices[n - 1]]
    assert len(changes) == 10
    at_us = minutes[0]
    for change in changes:
        while (until := book.holds_until_us("acme", "large", at_us)) < change:
            assert book.lookup("acme", "large", until) == book.lookup("acme", "large", at_us), "early is only wasteful"
            at_us = until
        assert until == change
        at_us = change
