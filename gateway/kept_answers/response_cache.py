"""The exact response cache: a tenant's request that equals an earlier one byte for byte gets the earlier answer
(apart from the boundary of a form, which is random).

Opt-in: by the header (`Incoming.cache_seconds`), a tag, or the rule that decided; the header takes precedence. A hit is
decided like any other request, so an answer is used only if the current rules let its model serve. It is booked as an
entry with backend `response_cache`, no tokens and cost 0; its list cost is what the answer originally cost. Only
complete answers are kept. Knows no store and no HTTP.
"""

import hashlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from backends.formats.form_splice import without_boundary
from backends.formats.responses import needs_its_provider
from backends.protocol import VENDOR_HEADERS, Chunk
from gateway.errors import StoreDown
from gateway.kept_answers.record_store import pseudonym
from gateway.ledger.entry import Cost, Entry, Status
from gateway.request.answer_parts import answer_headers, cost_text
from gateway.request.bookkeeping import Bookkeeper
from gateway.request.callers import PassingCaller
from gateway.request.run import Caller, Run
from gateway.routing.snapshot import Candidate

log = logging.getLogger(__name__)
BACKEND = "response_cache"
"""Backend and provider in the entry of a hit."""
TAG = "cache-answers"
"""A tag of a key or request that turns the cache on with the default time."""
DEFAULT_SECONDS = 3600
LARGEST_KEPT_BYTES = 1 << 20


class CachedAnswer(msgspec.Struct, frozen=True, array_like=True):
    """A complete answer in chunks; `cost_pico_usd` is what it originally cost, None if unknown."""

    model: str
    upstream_model: str
    content_type: str
    chunks: tuple[Chunk, ...]
    finish_reason: str | None
    cost_pico_usd: int | None


class ResponseStore(Protocol):
    """Answers by name, with expiry. Methods may raise StoreDown, but soon: the request then goes on uncached."""

    async def get(self, name: str) -> CachedAnswer | None: ...

    async def put(self, name: str, answer: CachedAnswer, seconds: int, *, owner: str = "") -> None:
        """A full store may evict other answers of an `owner` who has many."""
        ...


class ResponseCache:
    """One per worker process, over a store that may be shared."""

    def __init__(self, store: ResponseStore) -> None:
        self._store = store

    def ticket(self, run: Run, asked_seconds: int | None, of_rules: Mapping[str, int]) -> "Ticket | None":
        """A request's use of the cache; None if it does not use it. `of_rules`: seconds by the name of a rule."""
        if asked_seconds is None:
            asked_seconds = DEFAULT_SECONDS if TAG in run.intent.tags else of_rules.get(run.intent.decision.rule)
        if not asked_seconds or (run.view.operation == "responses" and needs_its_provider(run.body)):
            return None
        return Ticket(self._store, _name(run), asked_seconds)


@dataclass(slots=True)
class Recording(PassingCaller):
    """A Caller that records what passes, up to LARGEST_KEPT_BYTES."""

    chunks: list[Chunk] = field(default_factory=list[Chunk])
    size: int = 0
    is_whole: bool = False

    async def start(self, *, status: int, content_type: str, headers: Mapping[str, str]) -> None:
        self.content_type = content_type
        told = {**headers, "x-breakeven-cache": "miss"}
        await self.caller.start(status=status, content_type=content_type, headers=told)

    async def send(self, payload: bytes, *, chunk: Chunk | None = None, is_last: bool = False) -> None:
        self.size += len(payload)
        if chunk is not None and self.size <= LARGEST_KEPT_BYTES:
            self.chunks.append(msgspec.structs.replace(chunk, timings=None))
        self.is_whole = is_last and chunk is not None
        await self.caller.send(payload, chunk=chunk, is_last=is_last)


@dataclass(frozen=True, slots=True)
class Ticket:
    """One request that may be answered from the cache, and whose answer is kept there."""

    store: ResponseStore
    name: str
    seconds: int

    async def replay(self, run: Run, books: Bookkeeper, caller: Caller) -> bool:
        """Answers from the cache and books it; False if there is no usable answer."""
        answer = await self._get()
        candidate = next((one for one in run.choice.order if answer is not None and one.name == answer.model), None)
        if answer is None or candidate is None:
            return False
        run.candidate = candidate
        await books.book(run, hit_entry(run, candidate, answer, ended_at=books.monotonic()))
        headers = answer_headers(run) | {
            "x-breakeven-backend": BACKEND,
            "x-breakeven-cache": "hit",
            "x-breakeven-cost-usd": "0",
            "x-breakeven-saved-usd": cost_text(answer.cost_pico_usd or 0),
        }
        await caller.start(status=200, content_type=answer.content_type, headers=headers)
        for place, chunk in enumerate(answer.chunks):
            await caller.send(chunk.payload, chunk=chunk, is_last=place == len(answer.chunks) - 1)
        return True

    async def keep(self, run: Run, sent: Recording) -> None:
        """Keeps the answer, if all of it was sent."""
        entry = run.entry
        if not sent.is_whole or sent.size > LARGEST_KEPT_BYTES or entry is None or entry.status is not Status.completed:
            return
        cost = entry.cost.total_pico_usd if entry.cost is not None else None
        reason = entry.finish_reason
        answer = CachedAnswer(entry.model, entry.upstream_model, sent.content_type, tuple(sent.chunks), reason, cost)
        try:
            await self.store.put(self.name, answer, self.seconds, owner=pseudonym(run.intent.tenant))
        except StoreDown as error:
            log.warning("an answer is not kept in the response cache: %s", error)

    async def _get(self) -> CachedAnswer | None:
        try:
            return await self.store.get(self.name)
        except StoreDown as error:
            log.warning("going on without the response cache: %s", error)
            return None


def hit_entry(run: Run, candidate: Candidate, answer: CachedAnswer, *, ended_at: float) -> Entry:
    """The ledger entry of a hit: nothing bought; the list cost is what it saved."""
    return Entry(
        intent=run.intent,
        status=Status.completed,
        model=candidate.name,
        backend=BACKEND,
        provider=BACKEND,
        upstream_model=answer.upstream_model,
        input_tokens=0,
        cached_input_tokens=0,
        cache_write_5m_tokens=0,
        cache_write_1h_tokens=0,
        output_tokens=0,
        reasoning_tokens=0,
        is_usage_estimated=False,
        is_simulated=candidate.is_simulated,
        service_tier=None,
        cost=Cost(list_pico_usd=answer.cost_pico_usd or 0),
        cost_lower_pico_usd=0,
        cost_upper_pico_usd=0,
        gpu_seconds=0.0,
        queue_seconds=None,
        time_to_first_token_seconds=None,
        prefill_tokens_per_second=None,
        decode_tokens_per_second=None,
        total_seconds=max(0.0, ended_at - run.meter.started_at),
        finish_reason=answer.finish_reason,
        http_status=200,
        error=None,
        attempts=(),
    )


def vendor_text(headers: Mapping[str, str]) -> bytes:
    """Headers that distinguish requests with equal bodies."""
    return "".join(f"{name}: {headers[name]}\0" for name in sorted(headers) if name in VENDOR_HEADERS).encode()


def _name(run: Run) -> str:
    """Names of different tenants never coincide."""
    head = f"{run.intent.tenant}\0{run.view.operation}\0".encode() + vendor_text(run.headers)
    if run.view.operation == "generate_content":  # these are not in its body
        head += f"{run.view.model}\0{run.view.is_stream}\0".encode()
    return hashlib.sha256(head + without_boundary(run.body, run.content_type)).hexdigest()
