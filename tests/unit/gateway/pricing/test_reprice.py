import msgspec
import pytest

from gateway.ledger.entry import Cost, Entry
from gateway.pricing.catalogue import ModelRecord, PriceBook, Rates
from gateway.pricing.reprice import late_cost_pico_usd
from tests.unit.gateway.ledger.builders import make_entry
from tests.unit.gateway.pricing.builders import make_file, make_prices

BOOK = PriceBook([make_file(ModelRecord("large", (make_prices(Rates(2, 5, cached_input=1)),)))])


def unpriced(**fields: object) -> Entry:
    known = {
        "cost": None, "provider": "acme", "upstream_model": "large", "input_tokens": 10, "cached_input_tokens": 4,
        "cache_write_5m_tokens": 0, "cache_write_1h_tokens": 0, "output_tokens": 3, "reasoning_tokens": 0,
        "service_tier": None,
    }  # fmt: skip
    return msgspec.structs.replace(make_entry(), **{**known, **fields})


def test_an_unpriced_request_is_priced_from_its_token_classes() -> None:
    assert late_cost_pico_usd(unpriced(), BOOK) == 6 * 2 + 4 * 1 + 3 * 5


@pytest.mark.parametrize(
    "fields",
    [{"cost": Cost()}, {"upstream_model": "other"}, {"service_tier": "priority"}, {"cached_input_tokens": 11}],
)
def test_what_had_a_cost_or_still_has_none_is_left(fields: dict[str, object]) -> None:
    assert late_cost_pico_usd(unpriced(**fields), BOOK) is None
