"""The fast path for the most common usage must give exactly the same as the general one."""

from dataclasses import replace
from fractions import Fraction

from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import structs

from backends.usage import Usage
from gateway.pricing.catalogue import NO_DISCOUNT, Ladder, ModelPrices, Rates, Service, Step
from gateway.pricing.price import class_amounts, price, price_text_tokens, rounded, text_amounts

rate = st.integers(0, 10**8)
own_rate = st.one_of(st.none(), rate)
tokens = st.integers(0, 10**6)


@given(
    rates=st.builds(
        Rates, rate, rate, cached_input=own_rate, cache_write_5m=own_rate, cache_write_1h=own_rate, reasoning=own_rate
    ),
    parts=st.tuples(tokens, tokens, tokens, tokens, tokens, tokens),
)
def test_the_short_way_is_the_long_way(rates: Rates, parts: tuple[int, int, int, int, int, int]) -> None:
    fresh, read, short, long, plain, reasoning = parts
    usage = Usage(
        input_tokens=fresh + read + short + long,
        cached_input_tokens=read,
        cache_write_5m_tokens=short,
        cache_write_1h_tokens=long,
        output_tokens=plain + reasoning,
        reasoning_tokens=reasoning,
    )
    # A step that no prompt reaches changes no price, but takes the general path.
    stepped = Ladder(rates, (Step(10**9, Rates(7, 7), is_marginal=True),))
    assert text_amounts(usage, rates) == class_amounts(usage, Ladder(rates)) == class_amounts(usage, stepped)


@given(rates=st.builds(Rates, rate, rate), parts=st.tuples(tokens, tokens), fee=st.integers(0, 10**9))
def test_a_price_without_multiplier_and_discount_is_what_a_multiplier_of_one_gives(
    rates: Rates, parts: tuple[int, int], fee: int
) -> None:
    tiers = {"same": Service(Fraction(1))}
    prices = ModelPrices(Ladder(rates), 0, "test", services=tiers, per_request_pico_usd=fee)
    usage = Usage(input_tokens=parts[0], output_tokens=parts[1])
    assert price(usage, prices) == price(structs.replace(usage, service_tier="same"), prices)


all_rates = st.builds(Rates, rate, rate, cached_input=own_rate, cache_write_5m=own_rate)


@given(
    ladder=st.builds(Ladder, all_rates, st.lists(st.builds(Step, tokens, all_rates), max_size=2).map(tuple)),
    parts=st.tuples(tokens, tokens, tokens, tokens),
    fee=st.integers(0, 10**9),
    discount=st.just(NO_DISCOUNT) | st.fractions(-1, 1, max_denominator=1000),
)
def test_a_decision_prices_text_as_the_books_will(
    ladder: Ladder, parts: tuple[int, int, int, int], fee: int, discount: Fraction
) -> None:
    fresh, read, written, output = parts
    prices = ModelPrices(ladder, 0, "a test", per_request_pico_usd=fee, discount=discount)
    whole = fresh + read + written
    usage = Usage(input_tokens=whole, cached_input_tokens=read, cache_write_5m_tokens=written, output_tokens=output)
    assert price_text_tokens(whole, read, output, prices, written) == price(usage, prices).total_pico_usd


@given(amount=st.integers(0, 10**18), share=st.fractions(0, 2, max_denominator=1000))
@example(amount=5, share=Fraction(1, 2))
@example(amount=7, share=Fraction(1, 2))
def test_an_amount_is_rounded_as_fractions_are(amount: int, share: Fraction) -> None:
    assert rounded(amount, share) == round(amount * share)


def test_what_takes_more_than_rates_and_a_discount_is_left_to_the_long_way() -> None:
    base = ModelPrices(Ladder(Rates(3, 5)), 0, "a test")
    long = Ladder(base.rates, (Step(10, Rates(7, 7), is_marginal=True),))
    for prices in (
        replace(base, ladder=long),
        replace(base, services={"": Service(Fraction(2))}),
        replace(base, standard_tiers=("default",)),
    ):
        assert price_text_tokens(1, 0, 1, prices) is None
