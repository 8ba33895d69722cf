"""However many requests are repriced, few are in memory: corrections are booked in batches as they are found."""

from collections.abc import AsyncIterator, Mapping, Sequence

from gateway.ledger.entry import Entry
from gateway.pricing.catalogue import ModelRecord, PriceBook, Rates
from gateway.pricing.reprice import Booked
from gateway.reports.reprice_service import BOOKED_AT_ONCE, RepriceQuery, reprice_period
from gateway.stores import Adjustment
from tests.unit.gateway.ledger.builders import make_entry
from tests.unit.gateway.pricing.builders import make_file, make_prices

PAGE = 1000
BOOK = PriceBook([make_file(ModelRecord("large", (make_prices(Rates(2, 5)),)))])
ALWAYS = RepriceQuery(0, 2**62)


class Pages:
    """Requests without a price; counts how many were read so far."""

    def __init__(self, requests: int) -> None:
        self.requests = requests
        self.read = 0

    async def entries(self, since_us: int, until_us: int) -> AsyncIterator[list[Entry]]:
        for first in range(0, self.requests, PAGE):
            self.read = min(first + PAGE, self.requests)
            yield [
                make_entry(number, cost=None, provider="acme", upstream_model="large")
                for number in range(first, self.read)
            ]


class Transactions:
    """Records the size of each batch, and how many requests had been read by then; one of each batch is new."""

    def __init__(self, pages: Pages) -> None:
        self.pages = pages
        self.sizes: list[int] = []
        self.read: list[int] = []
        self.requests: list[str] = []

    async def book(self, batch: Sequence[Adjustment], *, author: str) -> int:
        self.sizes.append(len(batch))
        self.read.append(self.pages.read)
        self.requests += [one.request_id for one in batch]
        return 1

    async def booked(self, request_ids: Sequence[str]) -> Mapping[str, Booked]:
        return {}


async def test_many_are_booked_a_few_thousand_at_a_time_while_others_are_looked_for() -> None:
    pages = Pages(2 * BOOKED_AT_ONCE + 1)
    store = Transactions(pages)
    found = await reprice_period(ALWAYS, pages, store, BOOK, author="me")
    assert store.sizes == [BOOKED_AT_ONCE, BOOKED_AT_ONCE, 1]
    assert store.read == [BOOKED_AT_ONCE, 2 * BOOKED_AT_ONCE, 2 * BOOKED_AT_ONCE + 1], "no more is held than booked"
    assert len(set(store.requests)) == found.requests == 2 * BOOKED_AT_ONCE + 1
    assert found.booked == 3
    [model] = found.models
    assert (model.provider, model.upstream_model, model.was_pico_usd) == ("acme", "large", 0)
    assert model.now_pico_usd == found.difference_pico_usd > 0


async def test_who_only_asks_books_nothing() -> None:
    pages = Pages(PAGE + 1)
    store = Transactions(pages)
    found = await reprice_period(ALWAYS, pages, store, BOOK)
    assert (found.requests, found.booked, store.sizes) == (PAGE + 1, 0, [])


async def test_nothing_found_is_no_transaction() -> None:
    pages = Pages(0)
    store = Transactions(pages)
    found = await reprice_period(ALWAYS, pages, store, BOOK, author="me")
    assert (found.models, found.booked, store.sizes) == ([], 0, [])
