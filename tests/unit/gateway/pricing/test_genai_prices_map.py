from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from fractions import Fraction

import pytest

from gateway.pricing.catalogue import Ladder, Rates, Service, Step
from gateway.pricing.genai_prices_map import Row, Tiered, convert_rows
from tests.unit.gateway.pricing.builders import at

AS_OF = date(2026, 11, 21)
TABLE = {"input_mtok": Tiered(Decimal(2)), "output_mtok": Tiered(Decimal(8))}


def flat(value: int) -> Mapping[str, Tiered]:
    return {"input_mtok": Tiered(Decimal(value)), "output_mtok": Tiered(Decimal(value))}


def test_tiers_of_single_classes_become_steps_of_all() -> None:
    tiered = Tiered(Decimal(2), ((200_000, Decimal(4)),))
    found = convert_rows([Row("google", "g", [(None, {**TABLE, "input_mtok": tiered})])], as_of=AS_OF, source="s")
    prices = found["gemini"]["g"]
    assert prices.ladder == Ladder(Rates(2_000_000, 8_000_000), (Step(200_000, Rates(4_000_000, 8_000_000)),))
    assert prices.from_us == at("2026-11-01")


def test_the_latest_dated_price_in_force_holds_with_its_date() -> None:
    tables = [(None, flat(1)), (date(2026, 5, 1), flat(2)), (date(2026, 9, 1), flat(3)), (date(2027, 1, 1), flat(4))]
    prices = convert_rows([Row("openai", "g", tables)], as_of=AS_OF, source="s")["openai"]["g"]
    assert (prices.rates.input, prices.from_us) == (3_000_000, at("2026-09-01"))


def test_a_variant_overrides_only_what_it_names() -> None:
    half = {"input_mtok": Tiered(Decimal(1))}
    variants = [
        ({"processing": "batch"}, None, half),
        ({"service_tier": "flex"}, date(2027, 1, 1), half),
        ({"speed": "fast"}, None, half),
    ]
    prices = convert_rows([Row("openai", "g", [(None, TABLE)], variants)], as_of=AS_OF, source="s")["openai"]["g"]
    assert prices.services == dict.fromkeys(("batch", "fast"), Service(ladder=Ladder(Rates(1_000_000, 8_000_000))))
    whole = half | {"output_mtok": Tiered(Decimal(4))}
    row = Row("openai", "g", [(None, TABLE)], [({"processing": "batch"}, None, whole)])
    assert convert_rows([row], as_of=AS_OF, source="s")["openai"]["g"].services == {"batch": Service(Fraction(1, 2))}


@pytest.mark.parametrize(
    "row",
    [
        Row("unknown", "g", [(None, TABLE)]),
        Row("openai", "g", [(None, flat(0))]),
        Row("openai", "g", [(date(2027, 1, 1), TABLE)]),
        Row("deepseek", "g", [(None, TABLE)], has_hours=True),
        Row("openrouter", "a/b:batch", [(None, TABLE)]),
        Row("openrouter", "~a/latest", [(None, TABLE)]),
        Row("openrouter", "bare", [(None, TABLE)]),
    ],
)
def test_what_is_free_timed_future_or_a_variant_is_left_out(row: Row) -> None:
    assert convert_rows([row], as_of=AS_OF, source="s") == {}


def test_finer_than_a_pico_dollar_is_rounded() -> None:
    table = {**TABLE, "cache_read_mtok": Tiered(Decimal("0.0416666666666667"))}
    prices = convert_rows([Row("openrouter", "a/b", [(None, table)])], as_of=AS_OF, source="s")["openrouter"]["a/b"]
    assert prices.rates.cached_input == 41_667
