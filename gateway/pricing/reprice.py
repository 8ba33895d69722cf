"""What a past request costs according to what is known now about prices at its time, and the difference to the ledger.
Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from backends.usage import NO_UNITS, Usage
from gateway.ledger.entry import NO_MEDIA, Entry, Status
from gateway.pricing.catalogue import ModelPrices, PriceBook
from gateway.pricing.charged import charged
from gateway.pricing.price import PricingError, price

REASONS: Mapping[Literal["unpriced", "corrected"], str] = {
    "unpriced": "the price was not known when it was booked",
    "corrected": "the price of that day was corrected",
}
"""What is booked with a correction. The first tells, once a request is deleted, that it had no price."""
MEDIA_NEEDS = ("vision", "audio")
ANSWERED = "answered"


@dataclass(frozen=True, slots=True)
class Booked:
    """Price corrections of one request so far."""

    amount_pico_usd: int = 0
    count: int = 0


NOTHING_BOOKED = Booked()


@dataclass(frozen=True, slots=True)
class Repriced:
    """One request whose price has changed. `reference` differs between states of the ledger, not between runs; `after`
    is the number of corrections that this one takes into account."""

    request_id: str
    provider: str
    upstream_model: str
    why: Literal["unpriced", "corrected"]
    was_pico_usd: int
    now_pico_usd: int
    reference: str
    after: int

    @property
    def difference_pico_usd(self) -> int:
        return self.now_pico_usd - self.was_pico_usd


def reprice(entry: Entry, book: PriceBook, booked: Booked = NOTHING_BOOKED) -> Repriced | None:
    """None if the ledger is already right, or if nothing can be said.

    Nothing can be said about requests that prices do not explain: those on our own GPUs, those whose process died, and
    those without counts. The first versions stored no audio and image counts: a request of theirs that may have had
    some keeps its price or, if it has none, has those tokens priced as text.
    """
    was = (entry.cost.total_pico_usd if entry.cost else 0) + booked.amount_pico_usd
    is_unpriced = entry.cost is None and not booked.count
    may_lack_media = not is_unpriced and entry.media is None
    if may_lack_media and any(need in entry.intent.decision.facts.needs for need in MEDIA_NEEDS):
        return None
    now = _cost_pico_usd(entry, book)
    if now is None or (now == was and not is_unpriced):
        return None
    return Repriced(
        request_id=entry.intent.request_id,
        provider=entry.provider,
        upstream_model=entry.upstream_model,
        why="unpriced" if is_unpriced else "corrected",
        was_pico_usd=was,
        now_pico_usd=now,
        reference=f"{book.version}#{booked.count}",
        after=booked.count,
    )


def _cost_pico_usd(entry: Entry, book: PriceBook) -> int | None:
    if entry.status is Status.orphaned or (entry.cost is not None and entry.cost.compute_pico_usd):
        return None
    prices = book.lookup(entry.provider, entry.upstream_model, entry.intent.accepted_at_us)
    others = _others_pico_usd(entry)
    if entry.charged_pico_usd is not None and others is not None:
        return charged(Usage(charged_pico_usd=entry.charged_pico_usd), prices).total_pico_usd + others
    media = entry.media or NO_MEDIA
    is_counted = bool(entry.input_tokens or entry.output_tokens or media.units != NO_UNITS)
    if prices is None or others is None or not is_counted:
        return None
    if _has_uncounted_searches(entry, prices, others):
        return None
    usage = Usage(
        input_tokens=entry.input_tokens,
        cached_input_tokens=entry.cached_input_tokens,
        cache_write_5m_tokens=entry.cache_write_5m_tokens,
        cache_write_1h_tokens=entry.cache_write_1h_tokens,
        output_tokens=entry.output_tokens,
        reasoning_tokens=entry.reasoning_tokens,
        audio_input_tokens=media.audio_input_tokens,
        audio_output_tokens=media.audio_output_tokens,
        image_input_tokens=media.image_input_tokens,
        image_output_tokens=media.image_output_tokens,
        cached_audio_tokens=media.cached_audio_tokens,
        service_tier=entry.service_tier,
        web_searches=entry.web_searches,
        file_searches=entry.file_searches,
        other_tool_calls=entry.other_tool_calls,
        units=media.units,
    )
    try:
        return price(usage, prices).total_pico_usd + others
    except PricingError:
        return None


def _has_uncounted_searches(entry: Entry, prices: ModelPrices, others_pico_usd: int) -> bool:
    """The first versions charged searches without storing their count."""
    if entry.media is not None or entry.cost is None:
        return False
    if entry.web_searches or entry.file_searches or prices.per_request_pico_usd:
        return False
    return prices.web_search_pico_usd is not None and entry.cost.other_pico_usd > others_pico_usd


def _others_pico_usd(entry: Entry) -> int | None:
    """The cost of attempts that did not answer. It stays, since their tokens are not known any more."""
    costs = [one.cost_pico_usd for one in entry.attempts if one.outcome != ANSWERED]
    return None if None in costs else sum(cost or 0 for cost in costs)
