from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from backends.usage import Usage
from gateway.ledger.entry import Cost
from gateway.money import parse_usd
from gateway.pricing.catalogue import ModelPrices, Rates, Service, Step
from gateway.pricing.price import (
    MalformedUsage,
    UnknownServiceTier,
    UnknownToolPrice,
    price,
    price_bound,
    price_compute,
)
from tests.unit.gateway.pricing.builders import SONNET, make_prices, make_usage

WORKED = make_usage(
    input_tokens=12_000,
    cached_input_tokens=8_000,
    cache_write_5m_tokens=2_000,
    output_tokens=900,
    reasoning_tokens=400,
)
LONG = Step(200_000, Rates(input=6_000_000, output=22_500_000, cached_input=600_000))
TWICE_BEYOND = Step(100, Rates(input=2, output=9), is_marginal=True)


def test_the_worked_example_of_a_cached_request() -> None:
    cost = price(WORKED, make_prices())
    assert cost.total_pico_usd == cost.list_pico_usd == 29_400_000_000 == parse_usd("0.0294")
    assert cost.input_pico_usd == parse_usd("0.006")
    assert cost.cached_input_pico_usd == parse_usd("0.0024")
    assert cost.cache_write_pico_usd == parse_usd("0.0075")
    assert cost.output_pico_usd == parse_usd("0.0135")


def test_the_worked_example_without_a_cache() -> None:
    usage = make_usage(input_tokens=12_000, output_tokens=900, reasoning_tokens=400)
    assert price(usage, make_prices()).total_pico_usd == parse_usd("0.0495")


@pytest.mark.parametrize(
    ("write", "break_even"), [("cache_write_5m_tokens", Fraction(25, 90)), ("cache_write_1h_tokens", Fraction(100, 90))]
)
def test_a_cache_write_pays_from_the_reads_that_the_formula_says(write: str, break_even: Fraction) -> None:
    """0.2778 reads per write at 1.25 times the input price, and 1.111 at twice, if a read costs a tenth."""
    prices = make_prices()
    plain = price(make_usage(input_tokens=1000), prices).total_pico_usd
    written = price(make_usage(input_tokens=1000, **{write: 1000}), prices).total_pico_usd
    read = price(make_usage(input_tokens=1000, cached_input_tokens=1000), prices).total_pico_usd
    assert Fraction(written - plain, plain - read) == break_even


def test_reasoning_is_inside_output() -> None:
    with_reasoning = make_usage(output_tokens=900, reasoning_tokens=400)
    assert price(with_reasoning, make_prices()) == price(make_usage(output_tokens=900), make_prices())


def test_a_class_with_its_own_price() -> None:
    rates = replace(SONNET, reasoning=1, audio_input=2, audio_output=3, image_input=5)
    usage = make_usage(
        input_tokens=100,
        audio_input_tokens=10,
        image_input_tokens=20,
        output_tokens=50,
        reasoning_tokens=5,
        audio_output_tokens=7,
    )
    cost = price(usage, make_prices(rates))
    assert cost.input_pico_usd == 70 * 3_000_000 + 10 * 2 + 20 * 5
    assert cost.output_pico_usd == 38 * 15_000_000 + 5 * 1 + 7 * 3


def test_a_class_without_a_price_costs_as_its_plain_class() -> None:
    usage = make_usage(
        input_tokens=100,
        cached_input_tokens=10,
        cache_write_5m_tokens=20,
        cache_write_1h_tokens=30,
        audio_input_tokens=15,
        image_input_tokens=5,
        output_tokens=50,
        reasoning_tokens=5,
        audio_output_tokens=5,
    )
    assert price(usage, make_prices(Rates(7, 11))).total_pico_usd == 100 * 7 + 50 * 11


def test_a_long_write_without_a_price_costs_as_a_short_one() -> None:
    cost = price(make_usage(input_tokens=10, cache_write_1h_tokens=10), make_prices(Rates(7, 11, cache_write_5m=9)))
    assert cost.cache_write_pico_usd == 90


def test_media_read_from_the_cache_is_fresh_only_as_far_as_fresh_tokens_go() -> None:
    rates = Rates(10, 20, cached_input=1, audio_input=50, image_input=30)
    usage = make_usage(input_tokens=100, cached_input_tokens=80, audio_input_tokens=15, image_input_tokens=40)
    cost = price(usage, make_prices(rates))
    assert (cost.input_pico_usd, cost.cached_input_pico_usd) == (15 * 50 + 5 * 30, 80)


@pytest.mark.parametrize(("rate", "cached"), [(7, 60 + 20 * 7), (None, 80)])
def test_audio_that_is_known_to_be_cached_has_its_own_rate_or_that_of_cached_text(
    rate: int | None, cached: int
) -> None:
    rates = Rates(10, 20, cached_input=1, audio_input=50, cached_audio_input=rate)
    usage = make_usage(input_tokens=100, cached_input_tokens=80, audio_input_tokens=25, cached_audio_tokens=20)
    cost = price(usage, make_prices(rates))
    assert (cost.input_pico_usd, cost.cached_input_pico_usd) == (5 * 50 + 15 * 10, cached)


@pytest.mark.parametrize(("tokens", "expected"), [(200_000, 200_000 * 3_000_000), (200_001, 200_001 * 6_000_000)])
def test_the_whole_request_is_repriced_above_the_threshold(tokens: int, expected: int) -> None:
    cost = price(make_usage(input_tokens=tokens, output_tokens=10), make_prices(steps=(LONG,)))
    assert cost.input_pico_usd == expected
    assert cost.output_pico_usd == 10 * (22_500_000 if tokens > 200_000 else 15_000_000)


def test_the_highest_step_that_is_passed_holds() -> None:
    steps = (Step(10, Rates(2, 2)), Step(20, Rates(3, 3)))
    assert price(make_usage(input_tokens=21), make_prices(Rates(1, 1), steps=steps)).total_pico_usd == 63


def test_a_marginal_step_reprices_only_the_tokens_beyond_it() -> None:
    cost = price(make_usage(input_tokens=150, output_tokens=10), make_prices(Rates(1, 7), steps=(TWICE_BEYOND,)))
    assert cost.input_pico_usd == 100 * 1 + 50 * 2
    assert cost.output_pico_usd == 70


def test_the_cached_prefix_fills_a_marginal_step_first() -> None:
    prices = make_prices(
        Rates(10, 0, cached_input=1), steps=(Step(100, Rates(20, 0, cached_input=2), is_marginal=True),)
    )
    cost = price(make_usage(input_tokens=150, cached_input_tokens=120), prices)
    assert (cost.cached_input_pico_usd, cost.input_pico_usd) == (100 * 1 + 20 * 2, 30 * 20)


@pytest.mark.parametrize(
    ("tier", "output"), [(None, 15), ("default", 15), ("Standard", 15), ("batch", 7.5), ("priority", 40), ("flex", 15)]
)
def test_the_tier_of_the_response_sets_the_price(tier: str | None, output: float) -> None:
    own = make_prices(replace(SONNET, output=40_000_000)).ladder
    services = {"batch": Service(Fraction(1, 2)), "priority": Service(ladder=own)}
    prices = replace(make_prices(services=services), standard_tiers=("", "default", "standard", "flex"))
    usage = make_usage(output_tokens=1_000_000, service_tier=tier)
    assert price(usage, prices).total_pico_usd == parse_usd(str(output))


@pytest.mark.parametrize("tier", ["priority", "fast"])
def test_a_tier_without_a_price_is_not_guessed(tier: str) -> None:
    with pytest.raises(UnknownServiceTier, match=f"'{tier}'"):
        price(make_usage(service_tier=tier), make_prices())


def test_fast_is_another_name_of_priority_unless_it_has_a_price() -> None:
    usage = structs.replace(WORKED, service_tier="fast")
    plain, services = price(WORKED, make_prices()).total_pico_usd, {"priority": Service(Fraction(2))}
    assert price(usage, make_prices(services=services)).total_pico_usd == 2 * plain
    services["fast"] = Service(Fraction(6))
    assert price(usage, make_prices(services=services)).total_pico_usd == 6 * plain


def test_surcharges_are_multiplied_where_each_has_a_price() -> None:
    prices = make_prices(services={"fast": Service(Fraction(2)), "us": Service(Fraction(11, 10))})
    plain = price(WORKED, prices).total_pico_usd
    for tier, times in (("fast", Fraction(2)), ("us", Fraction(11, 10)), ("fast+us", Fraction(22, 10))):
        assert price(structs.replace(WORKED, service_tier=tier), prices).total_pico_usd == plain * times
    for unknown in ("fast+eu", "fast+", "+us"):
        with pytest.raises(UnknownServiceTier):
            price(structs.replace(WORKED, service_tier=unknown), prices)
    listed = make_prices(services={"fast": Service(ladder=prices.ladder), "us": Service(Fraction(11, 10))})
    with pytest.raises(UnknownServiceTier):
        price(structs.replace(WORKED, service_tier="fast+us"), listed)


def test_list_keeps_the_price_before_the_discount() -> None:
    prices = make_prices(discount=Fraction(1, 10), per_request_pico_usd=100)
    cost = price(WORKED, prices)
    assert cost.list_pico_usd == 29_400_000_100
    assert cost.total_pico_usd == 26_460_000_090


def test_batch_is_part_of_the_list_price() -> None:
    cost = price(
        structs.replace(WORKED, service_tier="batch"), make_prices(services={"batch": Service(Fraction(1, 2))})
    )
    assert cost.total_pico_usd == cost.list_pico_usd == 14_700_000_000


@pytest.mark.parametrize(("rate", "rounded"), [(1, 0), (3, 2), (5, 2), (7, 4)])
def test_half_a_pico_dollar_is_rounded_to_even_once_a_class(rate: int, rounded: int) -> None:
    prices = make_prices(Rates(rate, rate), discount=Fraction(1, 2))
    cost = price(make_usage(input_tokens=1, output_tokens=1), prices)
    assert (cost.input_pico_usd, cost.output_pico_usd) == (rounded, rounded)


@pytest.mark.parametrize(
    "usage",
    [
        make_usage(input_tokens=10, cached_input_tokens=11),
        make_usage(input_tokens=10, cached_input_tokens=5, cache_write_5m_tokens=3, cache_write_1h_tokens=3),
        make_usage(input_tokens=10, audio_input_tokens=6, image_input_tokens=5),
        make_usage(input_tokens=10, cached_input_tokens=5, audio_input_tokens=5, cached_audio_tokens=6),
        make_usage(output_tokens=10, reasoning_tokens=11),
        make_usage(output_tokens=10, reasoning_tokens=6, audio_output_tokens=5),
        make_usage(input_tokens=-1),
        make_usage(output_tokens=-1),
    ],
)
def test_contradictory_counts_are_refused_never_clamped(usage: Usage) -> None:
    with pytest.raises(MalformedUsage):
        price(usage, make_prices())


def test_a_refusal_names_the_count_that_is_wrong() -> None:
    with pytest.raises(MalformedUsage, match=r"^output_tokens is -2$"):
        price(make_usage(input_tokens=3, output_tokens=-2), make_prices())


def test_gpu_time_at_an_hourly_price() -> None:
    """The documented example of 0.28125 GPU-seconds at $2 per hour."""
    cost = price_compute(0.28125, parse_usd(2))
    assert cost == Cost(compute_pico_usd=parse_usd("0.00015625"), list_pico_usd=parse_usd("0.00015625"))
    assert cost.total_pico_usd == cost.list_pico_usd


def test_no_gpu_time_costs_nothing() -> None:
    assert price_compute(0.0, parse_usd(2)) == Cost()


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf")])
def test_gpu_time_that_is_no_duration_is_refused(seconds: float) -> None:
    with pytest.raises(MalformedUsage):
        price_compute(seconds, parse_usd(2))


FEW = settings(max_examples=30)
TOKENS = st.integers(0, 300_000)


@st.composite
def usages(draw: st.DrawFn) -> Usage:
    read, short, long, fresh, reasoning, plain, sound = (draw(TOKENS) for _ in range(7))
    whole = read + short + long + fresh
    return Usage(
        input_tokens=whole,
        cached_input_tokens=read,
        cache_write_5m_tokens=short,
        cache_write_1h_tokens=long,
        output_tokens=reasoning + plain + sound,
        reasoning_tokens=reasoning,
        audio_output_tokens=sound,
        audio_input_tokens=draw(st.integers(0, fresh)),
        service_tier=draw(st.sampled_from([None, "batch", "priority"])),
    )


RATE = st.integers(0, 100_000_000)
OWN = st.none() | RATE
RATES = st.builds(Rates, RATE, RATE, OWN, OWN, OWN, OWN, OWN, OWN, OWN)


@st.composite
def price_lists(draw: st.DrawFn, *, discounted: bool = True) -> ModelPrices:
    multiplier = st.fractions(0, 3, max_denominator=20) if discounted else st.integers(0, 3).map(Fraction)
    return make_prices(
        draw(RATES),
        services={"batch": Service(draw(multiplier)), "priority": Service(ladder=make_prices(draw(RATES)).ladder)},
        per_request_pico_usd=draw(RATE),
        discount=draw(st.fractions(0, 1, max_denominator=20)) if discounted else Fraction(0),
    )


def add(one: Usage, other: Usage) -> Usage:
    names = [name for name in Usage.__struct_fields__ if name.endswith("_tokens")]
    return structs.replace(one, **{name: getattr(one, name) + getattr(other, name) for name in names})


@FEW
@given(usages(), usages(), price_lists(discounted=False))
def test_two_usages_cost_what_their_sum_costs(one: Usage, other: Usage, prices: ModelPrices) -> None:
    """Without steps, and except for the fee, which is charged per call."""
    other = structs.replace(other, service_tier=one.service_tier)
    parts = price(one, prices).total_pico_usd + price(other, prices).total_pico_usd
    assert parts - prices.per_request_pico_usd == price(add(one, other), prices).total_pico_usd


@FEW
@given(usages(), price_lists())
def test_no_class_is_ever_negative_and_a_discount_never_raises_the_bill(usage: Usage, prices: ModelPrices) -> None:
    cost = price(usage, prices)
    classes = (cost.input_pico_usd, cost.cached_input_pico_usd, cost.cache_write_pico_usd, cost.output_pico_usd)
    assert min(*classes, cost.other_pico_usd, cost.list_pico_usd) >= 0
    assert cost.total_pico_usd <= cost.list_pico_usd


@FEW
@given(usages(), usages(), price_lists())
def test_more_tokens_never_cost_less(usage: Usage, more: Usage, prices: ModelPrices) -> None:
    assert price(usage, prices).total_pico_usd <= price(add(usage, more), prices).total_pico_usd


@FEW
@given(usages(), RATES, st.integers(0, 10**6), st.sampled_from(list(Rates.__dataclass_fields__)))
def test_a_higher_rate_never_costs_less(usage: Usage, rates: Rates, rise: int, name: str) -> None:
    usage = structs.replace(usage, service_tier=None)
    if getattr(rates, name) is None:
        return
    dearer = replace(rates, **{name: getattr(rates, name) + rise})
    assert price(usage, make_prices(rates)).total_pico_usd <= price(usage, make_prices(dearer)).total_pico_usd


@FEW
@given(usages(), price_lists(), RATES, st.integers(0, 500_000), st.booleans(), st.booleans())
def test_the_bound_holds_however_the_tokens_divide(
    usage: Usage, prices: ModelPrices, above: Rates, limit: int, is_marginal: bool, is_served_as_asked: bool
) -> None:
    ladder = replace(prices.ladder, steps=(Step(limit, above, is_marginal),))
    prices = replace(prices, ladder=ladder)
    bound = price_bound(usage.input_tokens, usage.output_tokens, prices, service_tier=usage.service_tier)
    served = usage if is_served_as_asked else structs.replace(usage, service_tier="default")
    assert price(served, prices).total_pico_usd <= bound


def test_the_bound_is_tighter_when_less_can_happen() -> None:
    prices = make_prices(replace(SONNET, audio_input=32_000_000))
    assert price_bound(1000, 10, prices) == 32_000_000_000 + 150_000_000 + 3
    assert price_bound(1000, 10, prices, may_have_media=False) == 6_000_000_000 + 150_000_000 + 3
    assert price_bound(1000, 10, prices, may_have_media=False, may_write_cache=False) == 3_150_000_000 + 3


def test_the_bound_is_of_the_dearer_of_the_tier_asked_for_and_the_ordinary_one() -> None:
    """Providers answer from the ordinary tier if the other one is full."""
    dearer, cheaper = Service(Fraction(2)), Service(Fraction(1, 2))
    prices = make_prices(replace(SONNET, output=1_000_001), services={"priority": dearer, "flex": cheaper})
    plain = price_bound(0, 3, prices)
    assert plain == 3_000_003 + 3
    assert price_bound(0, 3, prices, service_tier="priority") == 6_000_006 + 3
    assert price_bound(0, 3, prices, service_tier="flex") == plain


def test_the_bound_knows_the_discount_and_the_price_of_the_request() -> None:
    prices = make_prices(discount=Fraction(1, 10), per_request_pico_usd=100)
    assert price_bound(0, 1000, prices) == 13_500_000_000 + 90 + 3


@pytest.mark.parametrize(("what", "each"), [("web_search", 10**10), ("file_search", 25 * 10**8)])
def test_searches_are_charged_beside_the_tokens(what: str, each: int) -> None:
    searched = structs.replace(WORKED, **{f"{what}es": 3})
    prices = replace(make_prices(), **{f"{what}_pico_usd": each})
    plain = price(WORKED, prices)
    cost = price(searched, prices)
    assert cost.other_pico_usd - plain.other_pico_usd == 3 * each
    assert cost.total_pico_usd - plain.total_pico_usd == 3 * each
    with pytest.raises(UnknownToolPrice, match=f"3 {what.replace('_', ' ')}es"):
        price(searched, make_prices())


def test_searches_of_both_kinds_and_a_discount() -> None:
    searched = structs.replace(WORKED, web_searches=2, file_searches=1)
    prices = replace(make_prices(discount=Fraction(1, 10)), web_search_pico_usd=10**10, file_search_pico_usd=25 * 10**8)
    assert price(searched, prices).other_pico_usd == 20_250_000_000


def test_other_tools_make_the_cost_unknown() -> None:
    prices = replace(make_prices(), web_search_pico_usd=1, file_search_pico_usd=1)
    with pytest.raises(UnknownToolPrice, match="1 other tool calls"):
        price(structs.replace(WORKED, other_tool_calls=1), prices)
