"""Corrections reach the books in transactions of a bounded size: nobody else writes while one lasts."""

from collections.abc import Mapping, Sequence

from gateway.pricing.reprice import Booked, Repriced
from gateway.reports.reprice_service import BOOKED_AT_ONCE, book_repriced
from gateway.stores import Adjustment


class Transactions:
    """Keeps the size of each; every request was booked before but one in each."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.requests: list[str] = []

    async def book(self, batch: Sequence[Adjustment], *, author: str) -> int:
        self.sizes.append(len(batch))
        self.requests += [one.request_id for one in batch]
        return 1

    async def booked(self, request_ids: Sequence[str]) -> Mapping[str, Booked]:
        return {}


def repriced(number: int) -> Repriced:
    return Repriced(f"{number:032x}", "openai", "mid", "unpriced", 0, 5, "prices-2")


async def test_many_are_booked_a_few_thousand_at_a_time() -> None:
    store = Transactions()
    found = [repriced(number) for number in range(2 * BOOKED_AT_ONCE + 1)]
    assert await book_repriced(found, store, author="me") == 3
    assert store.sizes == [BOOKED_AT_ONCE, BOOKED_AT_ONCE, 1]
    assert store.requests == [one.request_id for one in found]


async def test_nothing_found_is_no_transaction() -> None:
    store = Transactions()
    assert (await book_repriced([], store, author="me"), store.sizes) == (0, [])
