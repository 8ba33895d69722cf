"""Corrections of past prices: found, summed up, and booked beside the entries, which are never rewritten."""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from gateway.ledger.entry import Entry
from gateway.pricing.catalogue import PriceBook
from gateway.pricing.reprice import NOTHING_BOOKED, Booked, Repriced, reprice
from gateway.stores import Adjustment

BOOKED_AT_ONCE = 5000
REASONS = {
    "unpriced": "the price was not known when it was booked",
    "corrected": "the price of that day was corrected",
}


class Pages(Protocol):
    """The ledger in pages."""

    def entries(self, since_us: int, until_us: int) -> AsyncIterator[list[Entry]]: ...


class Corrections(Protocol):
    """Where corrections are booked."""

    async def book(self, batch: Sequence[Adjustment], *, author: str) -> int: ...

    async def booked(self, request_ids: Sequence[str]) -> Mapping[str, Booked]: ...


@dataclass(frozen=True, slots=True)
class RepriceQuery:
    """Which requests to look at; `only_unpriced` leaves alone what had a price."""

    since_us: int
    until_us: int
    provider: str | None = None
    upstream_model: str | None = None
    only_unpriced: bool = False

    def takes(self, entry: Entry) -> bool:
        return (
            self.provider in (None, entry.provider)
            and self.upstream_model in (None, entry.upstream_model)
            and not (self.only_unpriced and entry.cost is not None)
        )


@dataclass(frozen=True, slots=True)
class RepricedModel:
    """The sum of one provider's model."""

    provider: str
    upstream_model: str
    why: str
    requests: int
    was_pico_usd: int
    now_pico_usd: int


async def find_repriced(query: RepriceQuery, ledger: Pages, store: Corrections, book: PriceBook) -> list[Repriced]:
    """Every request of the period that costs something else by `book`; books nothing."""
    found: list[Repriced] = []
    async for page in ledger.entries(query.since_us, query.until_us):
        wanted = [entry for entry in page if query.takes(entry)]
        booked = await store.booked([entry.intent.request_id for entry in wanted])
        for entry in wanted:
            one = reprice(entry, book, booked.get(entry.intent.request_id, NOTHING_BOOKED))
            if one is not None:
                found.append(one)
    return found


async def book_repriced(found: Iterable[Repriced], store: Corrections, *, author: str) -> int:
    """How many were new: running twice, or two at once, books each once. What one transaction books is bounded, so that
    a month of them does not keep the shipper waiting."""
    left, booked = iter(found), 0
    while some := list(islice(left, BOOKED_AT_ONCE)):
        booked += await store.book([_adjustment(one) for one in some], author=author)
    return booked


def _adjustment(one: Repriced) -> Adjustment:
    return Adjustment(
        request_id=one.request_id,
        kind="reprice",
        reference=one.reference,
        amount_pico_usd=one.difference_pico_usd,
        reason=REASONS[one.why],
    )


def by_model(found: Iterable[Repriced]) -> list[RepricedModel]:
    """The largest difference first."""
    groups: dict[tuple[str, str, str], list[Repriced]] = {}
    for one in found:
        groups.setdefault((one.provider, one.upstream_model, one.why), []).append(one)
    rows = [
        RepricedModel(
            provider=provider,
            upstream_model=model,
            why=REASONS[why],
            requests=len(group),
            was_pico_usd=sum(one.was_pico_usd for one in group),
            now_pico_usd=sum(one.now_pico_usd for one in group),
        )
        for (provider, model, why), group in groups.items()
    ]
    return sorted(rows, key=lambda row: -abs(row.now_pico_usd - row.was_pico_usd))
