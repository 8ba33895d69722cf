"""Finds corrections of past prices, sums them, and books them next to the entries, which are never rewritten."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from gateway.ledger.entry import Entry
from gateway.pricing.catalogue import PriceBook
from gateway.pricing.reprice import NOTHING_BOOKED, REASONS, Booked, Repriced, reprice
from gateway.stores import Adjustment

BOOKED_AT_ONCE = 5000


class Pages(Protocol):
    def entries(self, since_us: int, until_us: int) -> AsyncIterator[list[Entry]]: ...


class Corrections(Protocol):
    """Where corrections are booked."""

    async def book(self, batch: Sequence[Adjustment], *, author: str) -> int: ...

    async def booked(self, request_ids: Sequence[str]) -> Mapping[str, Booked]: ...


@dataclass(frozen=True, slots=True)
class RepriceQuery:
    """Which requests to look at; `only_unpriced` skips those that had a price."""

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


@dataclass(slots=True)
class RepricedModel:
    """Running sum for one provider's model."""

    provider: str
    upstream_model: str
    why: str
    requests: int = 0
    was_pico_usd: int = 0
    now_pico_usd: int = 0

    def add(self, one: Repriced) -> None:
        self.requests += 1
        self.was_pico_usd += one.was_pico_usd
        self.now_pico_usd += one.now_pico_usd


@dataclass(frozen=True, slots=True)
class Repricing:
    """What was found, largest difference first, how many corrections were new, and how many requests were read."""

    models: list[RepricedModel]
    booked: int
    read: int

    @property
    def requests(self) -> int:
        return sum(one.requests for one in self.models)

    @property
    def difference_pico_usd(self) -> int:
        return sum(one.now_pico_usd - one.was_pico_usd for one in self.models)


async def reprice_period(
    query: RepriceQuery, ledger: Pages, store: Corrections, book: PriceBook, *, author: str | None = None
) -> Repricing:
    """Every request of the period whose cost differs by `book`; booked only if there is an author.

    Holds no more than one transaction books, which is bounded too, so that a month of corrections does not keep the
    shipper waiting. Repeated or concurrent runs book each correction once, even with other prices; an interrupted run
    can simply be repeated.
    """
    groups: dict[tuple[str, str, str], RepricedModel] = {}
    waiting: list[Adjustment] = []
    booked = read = 0
    async for page in ledger.entries(query.since_us, query.until_us):
        read += len(page)
        for one in await _repriced(page, query, store, book):
            key = (one.provider, one.upstream_model, REASONS[one.why])
            groups.setdefault(key, RepricedModel(*key)).add(one)
            if author is None:
                continue
            waiting.append(_adjustment(one))
            if len(waiting) == BOOKED_AT_ONCE:
                booked += await store.book(waiting, author=author)
                waiting = []
    if waiting and author is not None:
        booked += await store.book(waiting, author=author)
    return Repricing(sorted(groups.values(), key=lambda row: -abs(row.now_pico_usd - row.was_pico_usd)), booked, read)


async def _repriced(page: Sequence[Entry], query: RepriceQuery, store: Corrections, book: PriceBook) -> list[Repriced]:
    wanted = [entry for entry in page if query.takes(entry)]
    booked = await store.booked([entry.intent.request_id for entry in wanted])
    priced = (reprice(entry, book, booked.get(entry.intent.request_id, NOTHING_BOOKED)) for entry in wanted)
    return [one for one in priced if one is not None]


def _adjustment(one: Repriced) -> Adjustment:
    return Adjustment(
        request_id=one.request_id,
        kind="reprice",
        reference=one.reference,
        amount_pico_usd=one.difference_pico_usd,
        reason=REASONS[one.why],
        after=one.after,
    )
