"""Which past requests cost something else by today's prices, and the difference."""

from dataclasses import replace

import msgspec
import pytest

from gateway.ledger.entry import Attempt, Cost, Entry, Media, Status
from gateway.pricing.catalogue import ModelRecord, PriceBook, Rates
from gateway.pricing.reprice import Booked, reprice
from tests.unit.gateway.ledger.builders import make_decision, make_entry, make_facts, make_intent, make_local_entry
from tests.unit.gateway.pricing.builders import make_file, make_prices

BOOK = PriceBook([make_file(ModelRecord("large", (make_prices(Rates(2, 5, cached_input=1)),)))])
COST = 6 * 2 + 4 * 1 + 3 * 5


def booked(**fields: object) -> Entry:
    """An entry, without a cost unless one is given."""
    known = {
        "cost": None, "provider": "acme", "upstream_model": "large", "input_tokens": 10, "cached_input_tokens": 4,
        "cache_write_5m_tokens": 0, "cache_write_1h_tokens": 0, "output_tokens": 3, "reasoning_tokens": 0,
        "service_tier": None,
    }  # fmt: skip
    return msgspec.structs.replace(make_entry(), **{**known, **fields})


def with_needs(*needs: str) -> dict[str, object]:
    return {"intent": make_intent(decision=make_decision(facts=make_facts(needs=needs)))}


def test_an_unpriced_request_is_priced_from_its_token_classes() -> None:
    found = reprice(booked(), BOOK)
    assert found is not None
    assert (found.why, found.was_pico_usd, found.now_pico_usd) == ("unpriced", 0, COST)


def test_a_corrected_price_is_booked_as_the_difference() -> None:
    found = reprice(booked(cost=Cost(input_pico_usd=40)), BOOK)
    assert found is not None
    assert (found.why, found.difference_pico_usd) == ("corrected", COST - 40)


def test_what_is_right_already_is_left_whatever_made_it_right() -> None:
    assert reprice(booked(cost=Cost(input_pico_usd=COST)), BOOK) is None
    assert reprice(booked(), BOOK, Booked(COST, 1)) is None
    assert reprice(booked(cost=Cost(input_pico_usd=40)), BOOK, Booked(COST - 40, 3)) is None


def test_what_the_provider_charged_is_not_corrected_by_a_price() -> None:
    charge = booked(cost=Cost(input_pico_usd=40), charged_pico_usd=40)
    assert reprice(charge, BOOK) is None
    assert reprice(msgspec.structs.replace(charge, upstream_model="unknown"), BOOK) is None


def test_a_price_that_is_corrected_back_gets_a_reference_of_its_own() -> None:
    """The books keep one correction per request and reference: three corrections must have three."""
    entry = booked(cost=Cost(input_pico_usd=COST))
    found = reprice(entry, BOOK, Booked(-7, 1))
    again = reprice(entry, BOOK, Booked(-7, 3))
    assert found is not None
    assert again is not None
    assert found.difference_pico_usd == 7
    assert found.reference != again.reference


def test_nothing_costs_zero_only_because_its_price_became_known() -> None:
    found = reprice(booked(), PriceBook([make_file(ModelRecord("large", (make_prices(Rates(0, 0)),)))]))
    assert found is not None, "a price of zero is a price: it is booked, once"
    assert found.difference_pico_usd == 0


@pytest.mark.parametrize(
    "fields",
    [
        {"upstream_model": "other"},
        {"service_tier": "priority"},
        {"cached_input_tokens": 11},
        {"status": Status.orphaned},
        {"input_tokens": 0, "cached_input_tokens": 0, "output_tokens": 0},
        {"cost": Cost(input_pico_usd=1), **with_needs("vision")},
        {"cost": Cost(input_pico_usd=1), **with_needs("streaming", "audio")},
    ],
)
def test_where_nothing_can_be_said_the_books_stay(fields: dict[str, object]) -> None:
    assert reprice(booked(**fields), BOOK) is None


def test_an_unpriced_request_with_images_is_priced_as_text() -> None:
    assert reprice(booked(**with_needs("vision")), BOOK) is not None


HEARD = PriceBook([make_file(ModelRecord("large", (make_prices(Rates(2, 5, 1, audio_input=20, audio_output=50)),)))])
SPOKEN = {"media": Media(audio_input_tokens=4, audio_output_tokens=3)}
SPOKEN_COST = 2 * 2 + 4 * 20 + 4 * 1 + 3 * 50


@pytest.mark.parametrize("needs", [(), ("audio",)])
def test_audio_that_was_counted_keeps_its_own_price(needs: tuple[str, ...]) -> None:
    """An answer may be audio though nothing in the request says so: priced as text, nine tenths were credited."""
    asked = with_needs(*needs)
    assert reprice(booked(cost=Cost(output_pico_usd=SPOKEN_COST), **asked, **SPOKEN), HEARD) is None
    for cost in (None, Cost(output_pico_usd=7)):
        found = reprice(booked(cost=cost, **asked, **SPOKEN), HEARD)
        assert found is not None
        assert found.now_pico_usd == SPOKEN_COST


def test_a_request_that_is_known_to_have_no_media_is_corrected_whatever_it_needed() -> None:
    found = reprice(booked(cost=Cost(input_pico_usd=40), media=Media(), **with_needs("vision")), BOOK)
    assert found is not None
    assert found.difference_pico_usd == COST - 40


def test_gpu_time_is_not_repriced() -> None:
    assert reprice(make_local_entry(), BOOK) is None


def tried(escalated_pico_usd: int | None) -> dict[str, object]:
    """An answer that was discarded but charged, then the entry's own."""
    attempts = (
        Attempt(1, "small", "other", "escalated:schema", 0.0, 1.0, escalated_pico_usd, 200),
        Attempt(2, "large", "acme", "answered", 1.0, 1.0, 0, 200),
    )
    return {"attempts": attempts}


def test_what_other_attempts_were_billed_stays() -> None:
    assert reprice(booked(cost=Cost(input_pico_usd=COST, other_pico_usd=9), **tried(9)), BOOK) is None
    found = reprice(booked(cost=Cost(input_pico_usd=40, other_pico_usd=9), **tried(9)), BOOK)
    assert found is not None
    assert (found.was_pico_usd, found.now_pico_usd) == (49, COST + 9)


def test_a_request_stays_unpriced_while_another_attempt_of_it_is() -> None:
    assert reprice(booked(**tried(None)), BOOK) is None
    assert reprice(booked(**tried(9)), BOOK) is not None


def test_searches_are_priced_again_and_other_tools_are_nobodys_guess() -> None:
    prices = replace(make_prices(Rates(2, 5, cached_input=1)), web_search_pico_usd=7, file_search_pico_usd=3)
    book = PriceBook([make_file(ModelRecord("large", (prices,)))])
    charged = Cost(input_pico_usd=COST, other_pico_usd=17)
    assert reprice(booked(cost=charged, web_searches=2, file_searches=1), book) is None
    found = reprice(booked(cost=charged, web_searches=3), book)
    assert found is not None
    assert found.now_pico_usd == COST + 21
    assert reprice(booked(other_tool_calls=1), book) is None
    assert reprice(booked(web_searches=1), BOOK) is None, "no price is known of a search"


def test_searches_that_an_older_version_charged_without_a_count_stay_charged() -> None:
    prices = replace(make_prices(Rates(2, 5, cached_input=1)), web_search_pico_usd=7)
    book = PriceBook([make_file(ModelRecord("large", (prices,)))])
    assert reprice(booked(cost=Cost(input_pico_usd=40, other_pico_usd=7)), book) is None
    assert reprice(booked(cost=Cost(input_pico_usd=40)), book) is not None
    found = reprice(booked(cost=Cost(input_pico_usd=40, other_pico_usd=9), **tried(9)), book)
    assert found is not None, "what is beside the tokens is another attempt's"
    assert found.now_pico_usd == COST + 9
